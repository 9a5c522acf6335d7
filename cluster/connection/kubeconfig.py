"""
A kubeconfig as a value: server, CA and credentials.

`read` merges files as kubectl does (the first file that names a thing wins, paths are relative to
the file that names them) and resolves one context into an `Account`. It reads credentials that are
text (token, token file, client certificate). It only notes an `exec` plugin or `auth-provider`
(`plugin`): `connection` runs those.
Every fault of a file is one `ConfigError` that names the file, the fault and the fix.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Account:
    """One resolved context. Certificates and keys are PEM bytes."""

    server: str
    user: str
    namespace: str
    context: str
    authority: bytes | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    plugin: bool = False

    def __repr__(self) -> str:
        return f"Account({self.user!r} at {self.server!r})"  # credentials never reach a log


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named part of a kubeconfig with the file it came from."""

    file: Path
    label: str
    body: Mapping[str, Any]

    def text(self, key: str) -> str | None:
        value = self.body.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            kind = type(value).__name__
            raise ConfigError(f"{self.file}: {self.label}: {key} must be a text, found {kind}")
        return value

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self.file.parent / Path(value).expanduser() if value else None

    def pem(self, key: str) -> bytes | None:
        """`<key>-data` in base64, else the file that `<key>` names."""
        data = self.text(f"{key}-data")
        if data is not None:
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as exc:
                raise ConfigError(f"{self.file}: {self.label}: {key}-data is no base64") from exc
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as exc:
            raise ConfigError(f"{self.file}: {self.label}: {key} {path}: {exc.strerror}") from exc


def read(paths: Iterable[Path], context: str | None = None) -> Account:
    """The account of `context`, or of the current one, over all files together."""
    files = [(path, _document(path)) for path in paths]
    if not files:
        raise ConfigError("kubeconfig: no file was given; name one with --kubeconfig")
    names = (context, *(doc.get("current-context") for _, doc in files))
    name = next((n for n in names if n), None)
    where = ", ".join(str(path) for path, _ in files)
    if not isinstance(name, str):
        raise ConfigError(
            f"{where}: no current-context is set; choose one with `kubectl config use-context`"
        )
    chosen = _find(files, "contexts", "context", name)
    cluster = _find(files, "clusters", "cluster", chosen.text("cluster") or "")
    user_name = chosen.text("user") or ""
    user = _find(files, "users", "user", user_name) if user_name else None
    return _account(name, chosen, cluster, user_name, user)


def _account(
    name: str, chosen: _Entry, cluster: _Entry, user_name: str, user: _Entry | None
) -> Account:
    server = (cluster.text("server") or "").rstrip("/")
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
        raise ConfigError(
            f"{cluster.file}: {cluster.label}: server must be an http(s) URL, found {server!r}"
        )
    user = user or _Entry(chosen.file, "no user", {})
    for key in ("username", "as"):
        if user.text(key):
            raise ConfigError(
                f"{user.file}: {user.label}: {key!r} is not supported; "
                "use a token, a client certificate or an exec plugin"
            )
    account = Account(
        server=server,
        user=user_name,
        namespace=chosen.text("namespace") or "default",
        context=name,
        authority=cluster.pem("certificate-authority"),
        insecure=cluster.body.get("insecure-skip-tls-verify") is True,
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        certificate=user.pem("client-certificate"),
        key=user.pem("client-key"),
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        plugin=bool(user.body.get("exec") or user.body.get("auth-provider")),
    )
    if (account.certificate is None) != (account.key is None):
        raise ConfigError(
            f"{user.file}: {user.label}: client-certificate and client-key go together, found one"
        )
    return account


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as exc:
        raise ConfigError(
            f"kubeconfig {path}: {exc.strerror}; name a readable file with --kubeconfig"
        ) from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        mark = getattr(exc, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(exc, "problem", None) or "not text"
        raise ConfigError(f"kubeconfig {path}:{place} no YAML: {problem}") from exc
    if document is None:
        return {}
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise ConfigError(f"kubeconfig {path}: want a Config document, found a {kind}")
    return document


def _find(files: list[tuple[Path, Mapping[str, Any]]], section: str, key: str, name: str) -> _Entry:
    known: list[str] = []
    for path, document in files:
        entries = document.get(section) or []
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict):
                continue
            if entry.get("name") == name:
                body = entry.get(key) or {}
                return _Entry(path, f"{key} {name!r}", body if isinstance(body, dict) else {})
            known.append(str(entry.get("name")))
    where = ", ".join(str(path) for path, _ in files)
    choices = ", ".join(known[:10]) or "none"
    raise ConfigError(f"{where}: no {key} is called {name!r}; the file has: {choices}")
