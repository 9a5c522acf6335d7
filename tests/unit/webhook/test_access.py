import pytest

from webhook.access import CLIENT, Access, Environ, guarded


def status(access: Access, path: str, client: str | None) -> int:
    """What the guard answers, 200 standing for the app behind it."""
    seen: list[str] = []

    def app(environ: Environ, start_response: object) -> list[bytes]:
        seen.append("200 OK")
        return []

    def start(line: str, headers: object) -> None:
        seen.append(line)

    list(guarded(app, access)({"PATH_INFO": path, CLIENT: client}, start))
    [line] = seen
    return int(line.split()[0])


@pytest.mark.parametrize(
    ("access", "path", "client", "want"),
    [
        pytest.param(Access(), "/validate", None, 200, id="anybody may ask by default"),
        pytest.param(Access(), "/metrics", None, 200, id="metrics without a port of their own"),
        pytest.param(Access(metrics=False), "/metrics", None, 404, id="metrics elsewhere"),
        pytest.param(Access(proven=True), "/validate", None, 403, id="no certificate"),
        pytest.param(Access(proven=True), "/mutate", None, 403, id="no certificate to mutate"),
        pytest.param(Access(proven=True), "/mutate", "x", 200, id="any certificate"),
        pytest.param(Access(proven=True), "/mutate", "", 200, id="a certificate without a name"),
        pytest.param(Access(True, {"a"}), "/mutate", "", 403, id="no name where one is wanted"),
        pytest.param(Access(True, {"a"}), "/mutate", "a", 200, id="the right name"),
        pytest.param(Access(True, {"a"}), "/mutate", "b", 403, id="another name"),
        pytest.param(Access(True, {"a"}), "/healthz", None, 200, id="a kubelet asks for health"),
        pytest.param(Access(True, {"a"}), "/readyz", None, 200, id="a kubelet asks for readiness"),
    ],
)
def test_who_may_ask_what(access: Access, path: str, client: str | None, want: int) -> None:
    assert status(access, path, client) == want
