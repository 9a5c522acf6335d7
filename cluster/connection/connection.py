"""
How to reach the API server and as whom: found once, at start, then a frozen value.

    --kubeconfig FILE  else  $KUBECONFIG  else  the pod's service account  else  ~/.kube/config

The first of these that exists decides. A broken one is a `ConfigError` and never leads to the next:
the program must not write to a cluster that the user did not mean.

Tokens come from a `Tokens` source because they expire: a service account's file is read again
every minute, and a plugin runs again when its token expires.

The `kubernetes` package is used for exec plugins and auth providers alone, and imported where it
is used: it costs 0.9 s and 35 MB, which a scheduler or a webhook on a service account, a token or
a client certificate never has to pay.
"""

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from cluster.connection import kubeconfig as kubeconfigs
from cluster.errors import ConfigError, Retry

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_REREAD_SECONDS: Final = 60.0


class Tokens(Protocol):
    """Where the bearer token comes from."""

    async def current(self) -> str | None:
        """The token to send now; None where the connection needs none."""

    def distrust(self) -> None:
        """The server answered 401: look for a newer token before the next use."""


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A token that is text in a kubeconfig, or none at all."""

    token: str | None = None

    async def current(self) -> str | None:
        return self.token

    def distrust(self) -> None:
        return None

    def __repr__(self) -> str:
        return "FixedToken()"


class FileToken:
    """A token in a file that another program, such as the kubelet, keeps fresh."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, now
        self._token: str | None = None
        self._read_at = -TOKEN_REREAD_SECONDS

    async def current(self) -> str | None:
        if self._token is None or self._now() - self._read_at >= TOKEN_REREAD_SECONDS:
            self._token = self._read() or self._token
            self._read_at = self._now()
        if self._token is None:
            raise Retry(f"token file {self._path}: empty or unreadable; it must hold a token")
        return self._token

    def distrust(self) -> None:
        self._read_at = self._now() - TOKEN_REREAD_SECONDS

    def _read(self) -> str | None:
        # A file in the middle of a swap is no error: the token in memory is still valid.
        try:
            return self._path.read_text(encoding="ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            return None


class PluginToken:
    """A token from an exec plugin or auth provider; runs in a thread, because it may block."""

    def __init__(
        self, run_plugin: Callable[[], str | None], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_plugin = run_plugin
        self._now = now
        self._token: str | None = None
        self._run_at = -TOKEN_REREAD_SECONDS

    async def current(self) -> str | None:
        if self._now() - self._run_at >= TOKEN_REREAD_SECONDS:
            self._run_at = self._now()
            try:
                self._token = await asyncio.to_thread(self._run_plugin)
            except Exception as exc:  # a plugin is foreign code: it can raise anything
                raise Retry(f"credential plugin: {exc}") from exc
        return self._token

    def distrust(self) -> None:
        self._run_at = self._now() - TOKEN_REREAD_SECONDS


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything a client needs to know before its first request."""

    server: str
    tokens: Tokens
    namespace: str = "default"
    user: str = ""
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None


def load(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find and load the connection, in the order that the module describes."""
    env = os.environ if environ is None else environ
    if kubeconfig is not None:
        return _from_files([Path(kubeconfig).expanduser()], context, env)
    listed = [Path(p).expanduser() for p in env.get("KUBECONFIG", "").split(os.pathsep) if p]
    if listed:
        return _from_files([p for p in listed if p.exists()] or listed[:1], context, env)
    if env.get("KUBERNETES_SERVICE_HOST") and context is None:
        return _in_cluster(env, service_account)
    default = Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not default.exists():
        raise ConfigError(
            f"no cluster: neither KUBECONFIG, nor a pod's service account, nor {default} exists; "
            "name a file with --kubeconfig"
        )
    return _from_files([default], context, env)


def _in_cluster(env: Mapping[str, str], folder: Path) -> Connection:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    token, authority = folder / "token", folder / "ca.crt"
    for path in (token, authority):
        if not path.is_file():
            raise ConfigError(
                f"service account: {path} is missing; set automountServiceAccountToken: true "
                "on the pod, or name a file with --kubeconfig"
            )
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tokens=FileToken(token),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        user="service account",
        tls=_tls(authority.read_bytes(), str(authority)),
    )


def _from_files(paths: list[Path], context: str | None, env: Mapping[str, str]) -> Connection:
    account = kubeconfigs.read(paths, context)
    where = ", ".join(str(p) for p in paths)
    certificate, key, tokens = account.certificate, account.key, _tokens_of(account)
    if account.plugin and account.token is None and account.token_file is None:
        certificate, key, tokens = _from_plugin(where, paths, account)
    tls = None
    if account.server.startswith("https:"):
        tls = _tls(account.authority, where, insecure=account.insecure)
        if certificate is not None and key is not None:
            _identify(tls, certificate, key, where)
    return Connection(
        server=account.server,
        tokens=tokens,
        namespace=account.namespace,
        user=account.user,
        tls=tls,
        server_name=account.server_name,
        proxy=account.proxy or _proxy_of(account.server, env),
    )


def _tokens_of(account: kubeconfigs.Account) -> Tokens:
    if account.token_file is not None:
        if not account.token_file.is_file():
            raise ConfigError(f"user {account.user!r}: tokenFile {account.token_file} is missing")
        return FileToken(account.token_file)
    return FixedToken(account.token)


def _from_plugin(
    where: str, paths: list[Path], account: kubeconfigs.Account
) -> tuple[bytes | None, bytes | None, Tokens]:
    """Let the `kubernetes` package run the plugin: certificate, key and a refreshing token."""
    from kubernetes import client, config

    settings: Any = client.Configuration()
    joined = os.pathsep.join(str(p) for p in paths)
    try:
        config.load_kube_config(
            config_file=joined, context=account.context, client_configuration=settings
        )
        certificate, key = (
            Path(name).read_bytes() if name else None
            for name in (settings.cert_file, settings.key_file)
        )
    except Exception as exc:  # a plugin is foreign code: it can raise anything
        raise ConfigError(f"{where}: user {account.user!r}: plugin: {exc}") from exc

    # The package logs the failure of a plugin and continues without credentials.
    if certificate is None and not settings.api_key.get("BearerToken"):
        raise ConfigError(
            f"{where}: user {account.user!r}: plugin: it gave neither a token nor a certificate; "
            "run its command by hand to see why"
        )

    def token() -> str | None:
        value = settings.get_api_key_with_prefix("BearerToken")
        return str(value).split(" ", 1)[-1] if value else None

    return certificate, key, PluginToken(token)


def _tls(authority: bytes | None, where: str, *, insecure: bool = False) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cadata=authority.decode("ascii") if authority else None
        )
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as exc:
        raise ConfigError(f"{where}: certificate-authority holds no PEM certificate") from exc
    # The CAs that Kubernetes tools generate often lack what strict X.509 requires.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _identify(tls: ssl.SSLContext, certificate: bytes, key: bytes, where: str) -> None:
    """Load the client certificate; ssl reads only files, so a file exists for a moment."""
    with tempfile.TemporaryDirectory(prefix="kubenexus-") as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            tls.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as exc:
            raise ConfigError(f"{where}: client-certificate and client-key do not match") from exc


def _proxy_of(server: str, env: Mapping[str, str]) -> str | None:
    """The proxy of the environment, as client-go reads it: never for localhost."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "localhost" or _is_loopback(host):
        return None
    names = {key.lower(): value for key, value in env.items() if value}
    if any(_covers(rule.strip(), host) for rule in names.get("no_proxy", "").split(",")):
        return None
    return names.get(f"{parts.scheme}_proxy")


def _covers(rule: str, host: str) -> bool:
    """One entry of NO_PROXY: `*`, a host, a domain with or without its dot, an address range."""
    if "/" in rule:
        try:
            return ip_address(host) in ip_network(rule, strict=False)
        except ValueError:
            return False
    domain = rule.lstrip(".")
    return rule == "*" or (domain != "" and (host == domain or host.endswith(f".{domain}")))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
