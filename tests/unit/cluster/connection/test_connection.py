"""Which cluster is meant, and as whom; a wrong file is one line that says what to correct."""

import asyncio
import base64
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import resources
from cluster.client import Client
from cluster.connection import connection
from cluster.connection.connection import Connection, FileToken, PluginToken
from cluster.errors import ConfigError, Retry
from tests.unit.cluster.fake_api import FakeApiServer, reply


def a_config(
    server: str = "http://127.0.0.1:1",
    *,
    name: str = "one",
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    **context: str,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": f"{name}-c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": f"{name}-u", "user": user or {}}],
        "contexts": [
            {"name": name, "context": {"cluster": f"{name}-c", "user": f"{name}-u", **context}}
        ],
    }


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def an_account(folder: Path) -> Path:
    write(folder / "token", "pod-token\n")
    write(folder / "namespace", "kube-home")
    write(folder / "ca.crt", AUTHORITY)
    return folder


def token_of(found: Connection) -> str | None:
    return asyncio.run(found.tokens.current())


# A self-signed certificate for no host at all; good until 2126.
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUPNnFpNPnpprHHRISTi35Tn5bi1QwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTExNjA2MjYyOFoYDzIxMjYxMDIzMDYy
NjI4WjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQpoIciw2KVuXF35CS3tb35bUhoVGoK0ISC9EJKdVw4cQ7RLAR/pjDtk4OrUr7E
d6Wi5P0lRikUr5fR0cB/w2MDo1MwUTAdBgNVHQ4EFgQUxSqcBcLqE+yYwP+GRGlV
sMcAbH8wHwYDVR0jBBgwFoAUxSqcBcLqE+yYwP+GRGlVsMcAbH8wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEArMT3pEsd0VWSnXnRsGvpJtnKsXVQ
WtlhCs18LQ7rbdECIAUDCXXxHF7tlmY5uldw5PzukxRP4Q91+1UgH4ysKyxn
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize(
    ("argument", "listed", "in_pod", "home", "want"),
    [
        pytest.param(True, True, True, True, "http://argument:1", id="the argument beats all"),
        pytest.param(False, True, True, True, "http://listed:1", id="then KUBECONFIG"),
        pytest.param(False, False, True, True, "https://10.0.0.1:443", id="then the pod's account"),
        pytest.param(False, False, False, True, "http://home:1", id="then the home folder"),
        pytest.param(False, False, False, False, None, id="nothing at all"),
    ],
)
def test_where_the_cluster_is_searched(
    tmp_path: Path, argument: bool, listed: bool, in_pod: bool, home: bool, want: str | None
) -> None:
    env = {"HOME": str(tmp_path)}
    given = write(tmp_path / "given", a_config("http://argument:1")) if argument else None
    if listed:
        env["KUBECONFIG"] = str(write(tmp_path / "listed", a_config("http://listed:1")))
    if in_pod:
        env["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    if home:
        write(tmp_path / ".kube/config", a_config("http://home:1"))
    account = an_account(tmp_path / "sa")
    if want is None:
        with pytest.raises(ConfigError, match="name a file with --kubeconfig"):
            connection.load(given, environ=env, service_account=account)
    else:
        got = connection.load(given, environ=env, service_account=account)
        assert got.server == want


def test_a_broken_file_is_no_reason_to_try_the_next(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", a_config("http://home:1"))
    env = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "missing")}
    with pytest.raises(ConfigError, match="missing: No such file or directory"):
        connection.load(environ=env)


def test_the_pod_s_account(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    got = connection.load(environ=env, service_account=an_account(tmp_path))
    assert (got.server, got.namespace, token_of(got)) == (
        "https://[fd00::1]:6443",
        "kube-home",
        "pod-token",
    )


def test_the_pod_has_no_account(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="automountServiceAccountToken: true"):
        connection.load(environ={"KUBERNETES_SERVICE_HOST": "h"}, service_account=tmp_path)


def test_several_files_make_one_configuration(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {**a_config("http://one:1"), "users": []})
    second = a_config("http://two:1", name="two")
    second["users"].append({"name": "one-u", "user": {"token": "from-second"}})
    env = {"KUBECONFIG": f"{first}:{write(tmp_path / 'second', second)}:{tmp_path / 'missing'}"}
    current = connection.load(environ=env)
    other = connection.load(context="two", environ=env)
    assert (current.server, token_of(current), other.server) == (
        "http://one:1",
        "from-second",
        "http://two:1",
    )


def test_the_fields_of_a_context(tmp_path: Path) -> None:
    document = a_config(
        "https://far:1/prefix/",
        user={"token": "t"},
        cluster={
            "certificate-authority-data": base64.b64encode(AUTHORITY.encode()).decode(),
            "tls-server-name": "api",
            "proxy-url": "http://proxy:3128",
        },
        namespace="home",
    )
    got = connection.load(write(tmp_path / "config", document), environ={})
    shown = (got.server, got.server_name, got.proxy, got.namespace, got.user, token_of(got))
    assert shown == (
        "https://far:1/prefix",
        "api",
        "http://proxy:3128",
        "home",
        "one-u",
        "t",
    )
    assert got.tls is not None
    assert got.tls.cert_store_stats()["x509"] == 1


def test_paths_are_relative_to_the_file_that_spells_them(tmp_path: Path) -> None:
    write(tmp_path / "deep/token", "from-file\n")
    document = a_config(user={"tokenFile": "token"})
    got = connection.load(write(tmp_path / "deep/config", document), environ={})
    assert token_of(got) == "from-file"


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param("a: [", "config: line 1 no YAML: ", id="broken YAML"),
        pytest.param("[]", "want a Config document, found a list", id="another document"),
        pytest.param("", "no current-context is set", id="an empty file"),
        pytest.param(
            {**a_config(), "current-context": "x"},
            "no context is called 'x'; the file has: one",
            id="a context that does not exist",
        ),
        pytest.param(
            {**a_config(), "clusters": []},
            "no cluster is called 'one-c'; the file has: none",
            id="a cluster that does not exist",
        ),
        pytest.param(
            a_config("10.0.0.1:6443"),
            "server must be an http(s) URL, found '10.0.0.1:6443'",
            id="a server without a scheme",
        ),
        pytest.param(
            a_config(cluster={"certificate-authority-data": "%%"}),
            "cluster 'one-c': certificate-authority-data is no base64",
            id="data that is no base64",
        ),
        pytest.param(
            a_config("https://h", cluster={"certificate-authority-data": "aGk="}),
            "certificate-authority holds no PEM certificate",
            id="an authority that is no certificate",
        ),
        pytest.param(
            a_config(user={"client-certificate": "nowhere.pem"}),
            "nowhere.pem: No such file or directory",
            id="a certificate file that does not exist",
        ),
        pytest.param(
            a_config(user={"client-key-data": "aGk="}),
            "client-certificate and client-key go together, found one",
            id="a key without a certificate",
        ),
        pytest.param(
            a_config(
                "https://h", user={"client-key-data": "aA==", "client-certificate-data": "aA=="}
            ),
            "client-certificate and client-key do not match",
            id="a certificate that is none",
        ),
        pytest.param(
            a_config(user={"username": "root", "password": "x"}),
            "'username' is not supported; use a token, a client certificate or an exec plugin",
            id="a password",
        ),
        pytest.param(
            a_config(user={"token": 7}), "token must be a text, found int", id="a token of digits"
        ),
        pytest.param(
            a_config(user={"tokenFile": "nowhere"}), "nowhere is missing", id="no token file"
        ),
        pytest.param(
            a_config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "args": []}}),
            "user 'one-u': plugin: ",
            id="a plugin without a command",
        ),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, document: object, want: str) -> None:
    path = write(tmp_path / "config", document)
    with pytest.raises(ConfigError) as caught:
        connection.load(path, environ={})
    assert want in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = write(
        tmp_path / "plugin",
        f"#!{sys.executable}\n"
        "import json\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': {'token': 'from-plugin'}}))\n",
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_config = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    got = connection.load(
        write(tmp_path / "config", a_config(user={"exec": exec_config})),
        environ={"HOME": str(tmp_path)},
    )
    assert token_of(got) == "from-plugin"


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    at = [0.0]
    path = write(tmp_path / "token", "first")
    source = FileToken(path, now=lambda: at[0])

    def after(seconds: float, content: str | None) -> str | None:
        at[0] += seconds
        path.unlink(missing_ok=True)
        if content is not None:
            write(path, content)
        return asyncio.run(source.current())

    got = [after(0, "first"), after(59, "second"), after(1, "second"), after(60, None)]
    source.distrust()
    got.append(after(1, "third"))
    assert got == ["first", "first", "second", "second", "third"]


def test_a_token_file_that_never_was_readable(tmp_path: Path) -> None:
    with pytest.raises(Retry, match="empty or unreadable"):
        asyncio.run(FileToken(tmp_path / "none").current())


def test_a_plugin_that_breaks_later_is_worth_another_try() -> None:
    def token() -> str | None:
        raise RuntimeError("no network")

    with pytest.raises(Retry, match="credential plugin: no network"):
        asyncio.run(PluginToken(token).current())


@pytest.mark.parametrize(
    ("server", "env", "want"),
    [
        pytest.param("http://far:1", {}, None, id="no proxy anywhere"),
        pytest.param("http://far:1", {"HTTP_PROXY": "http://p"}, "http://p", id="by scheme"),
        pytest.param("http://far:1", {"HTTPS_PROXY": "http://p"}, None, id="of the other scheme"),
        pytest.param("http://127.0.0.1:1", {"HTTP_PROXY": "http://p"}, None, id="this machine"),
        pytest.param(
            "http://a.corp:1", {"http_proxy": "http://p", "NO_PROXY": ".corp"}, None, id="a domain"
        ),
        pytest.param(
            "http://10.1.2.3",
            {"http_proxy": "http://p", "NO_PROXY": "x, 10.0.0.0/8"},
            None,
            id="an address range",
        ),
        pytest.param(
            "http://acorp:1",
            {"http_proxy": "http://p", "NO_PROXY": "corp"},
            "http://p",
            id="no suffix",
        ),
    ],
)
def test_the_proxy(tmp_path: Path, server: str, env: dict[str, str], want: str | None) -> None:
    got = connection.load(write(tmp_path / "config", a_config(server)), environ=env)
    assert got.proxy == want


def test_no_credential_shows_in_a_log(tmp_path: Path) -> None:
    document = a_config(user={"token": "s3cret"})
    got = connection.load(write(tmp_path / "config", document), environ={})
    assert "s3cret" not in repr(got)


def test_the_server_may_live_under_a_prefix() -> None:
    async def main() -> str:
        async with FakeApiServer([reply(200, {})]) as server:
            under = Connection(server=f"{server.connection.server}/k8s", tokens=server.tokens)
            async with Client(under) as client:
                await client.get(resources.NODES, "n")
            return server.requests[0].path

    assert asyncio.run(main()) == "/k8s/api/v1/nodes/n"
