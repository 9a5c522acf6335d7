import pytest

from webhook.serve.client_auth import CLIENT, AccessRules, ClientAuth, Environ


def status(access: AccessRules, path: str, client: str | None) -> int:
    """The status of the check; 200 stands for the application behind it."""
    seen: list[str] = []

    def app(environ: Environ, start_response: object) -> list[bytes]:
        seen.append("200 OK")
        return []

    def start(line: str, headers: object) -> None:
        seen.append(line)

    list(ClientAuth(app, access)({"PATH_INFO": path, CLIENT: client}, start))
    [line] = seen
    return int(line.split()[0])


@pytest.mark.parametrize(
    ("access", "path", "client", "want"),
    [
        pytest.param(AccessRules(), "/validate", None, 200, id="every client may call by default"),
        pytest.param(
            AccessRules(), "/metrics", None, 200, id="metrics without a port of their own"
        ),
        pytest.param(AccessRules(metrics=False), "/metrics", None, 404, id="metrics elsewhere"),
        pytest.param(
            AccessRules(require_certificate=True), "/validate", None, 403, id="no certificate"
        ),
        pytest.param(
            AccessRules(require_certificate=True),
            "/mutate",
            None,
            403,
            id="no certificate to mutate",
        ),
        pytest.param(
            AccessRules(require_certificate=True), "/mutate", "x", 200, id="any certificate"
        ),
        pytest.param(
            AccessRules(require_certificate=True),
            "/mutate",
            "",
            200,
            id="a certificate without a name",
        ),
        pytest.param(
            AccessRules(True, {"a"}), "/mutate", "", 403, id="no name where one is wanted"
        ),
        pytest.param(AccessRules(True, {"a"}), "/mutate", "a", 200, id="the right name"),
        pytest.param(AccessRules(True, {"a"}), "/mutate", "b", 403, id="another name"),
        pytest.param(AccessRules(True, {"a"}), "/healthz", None, 200, id="a kubelet probes health"),
        pytest.param(
            AccessRules(True, {"a"}), "/readyz", None, 200, id="a kubelet probes readiness"
        ),
    ],
)
def test_which_client_may_call_which_path(
    access: AccessRules, path: str, client: str | None, want: int
) -> None:
    assert status(access, path, client) == want


@pytest.mark.parametrize(
    ("access", "client", "want"),
    [
        pytest.param(AccessRules(), None, b"/mutate {}", id="every client may call by default"),
        pytest.param(AccessRules(require_certificate=True), None, None, id="no certificate"),
        pytest.param(AccessRules(True, {"a"}), "a", b"/mutate {}", id="the right name"),
        pytest.param(AccessRules(True, {"a"}), "b", None, id="another name"),
    ],
)
def test_the_door_without_wsgi_has_the_same_guard(
    access: AccessRules, client: str | None, want: bytes | None
) -> None:
    assert ClientAuth(Prompt(), access).answer_now("/mutate", b"{}", client) == want


def test_an_app_without_an_in_loop_answer_is_called_by_wsgi() -> None:
    assert (
        ClientAuth(lambda environ, start: [], AccessRules()).answer_now("/mutate", b"{}", None)
        is None
    )


class Prompt:
    def __call__(self, environ: Environ, start_response: object) -> list[bytes]:
        return []

    def answer_now(self, path: str, body: bytes) -> bytes | None:
        return f"{path} ".encode() + body
