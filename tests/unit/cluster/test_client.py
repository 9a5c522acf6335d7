"""The verbs as they are on the wire, and what each fault of the wire means to the caller."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster import resources
from cluster.client import Client
from cluster.errors import Conflict, Gone, KubeError, Refused, Retry
from cluster.verbs import PatchKind
from tests.unit.cluster import fake_api
from tests.unit.cluster.fake_api import Answer, FakeApiServer, Request, failure, reply

Call = Callable[[Client], Awaitable[Any]]

A_POD = {"metadata": {"name": "p", "namespace": "ns"}}


@dataclass
class Waits:
    """A sleep that takes no time and remembers its durations."""

    durations: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.durations.append(seconds)
        await asyncio.sleep(0)


async def get_pod(client: Client) -> Any:
    return await client.get(resources.PODS, "p", namespace="ns")


async def bind_pod(client: Client) -> Any:
    return await client.bind("ns", "p", "n")


async def make_pod(client: Client) -> Any:
    return await client.create(resources.PODS, A_POD)


def talk(script: list[Answer], call: Call, **options: Any) -> tuple[Any, list[Request]]:
    """The outcome of the call, a value or one of this package's errors, and the requests."""

    async def main() -> tuple[Any, list[Request]]:
        async with FakeApiServer(script) as server, Client(server.connection, **options) as client:
            try:
                outcome = await call(client)
            except KubeError as error:
                outcome = error
            return outcome, server.requests

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "want"),
    [
        pytest.param(get_pod, ("GET", "/api/v1/namespaces/ns/pods/p", {}, None, None), id="get"),
        pytest.param(
            make_pod,
            ("POST", "/api/v1/namespaces/ns/pods", {}, "application/json", A_POD),
            id="create takes the namespace from the object",
        ),
        pytest.param(
            lambda c: c.create(resources.NODES, {"metadata": {"name": "n"}}, field_manager="me"),
            (
                "POST",
                "/api/v1/nodes",
                {"fieldManager": "me"},
                "application/json",
                {"metadata": {"name": "n"}},
            ),
            id="create of what has no namespace",
        ),
        pytest.param(
            lambda c: c.update(resources.PODS, A_POD, subresource="status"),
            ("PUT", "/api/v1/namespaces/ns/pods/p/status", {}, "application/json", A_POD),
            id="update of a subresource",
        ),
        pytest.param(
            lambda c: c.patch(resources.NODES, "n", [{"op": "test"}], kind=PatchKind.JSON),
            ("PATCH", "/api/v1/nodes/n", {}, "application/json-patch+json", [{"op": "test"}]),
            id="JSON patch",
        ),
        pytest.param(
            lambda c: c.patch(resources.NODES, "n", {}, kind=PatchKind.APPLY, force=True),
            (
                "PATCH",
                "/api/v1/nodes/n",
                {"fieldManager": "kubenexus", "force": "true"},
                "application/apply-patch+yaml",
                {},
            ),
            id="apply names its manager",
        ),
        pytest.param(
            lambda c: c.patch_status(
                resources.PODS, "p", {"status": 1}, namespace="ns", kind=PatchKind.STRATEGIC
            ),
            (
                "PATCH",
                "/api/v1/namespaces/ns/pods/p/status",
                {},
                "application/strategic-merge-patch+json",
                {"status": 1},
            ),
            id="status patch",
        ),
        pytest.param(
            lambda c: c.delete(resources.PODS, "p", namespace="ns", uid="u", grace_seconds=0),
            (
                "DELETE",
                "/api/v1/namespaces/ns/pods/p",
                {},
                "application/json",
                {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                    "gracePeriodSeconds": 0,
                },
            ),
            id="delete of one very object",
        ),
        pytest.param(
            lambda c: c.bind("ns", "p", "n", uid="u", labels={"l": "1"}, annotations={"a": "2"}),
            (
                "POST",
                "/api/v1/namespaces/ns/pods/p/binding",
                {},
                "application/json",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {
                        "name": "p",
                        "namespace": "ns",
                        "uid": "u",
                        "labels": {"l": "1"},
                        "annotations": {"a": "2"},
                    },
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
                },
            ),
            id="bind carries precondition and assignment in one write",
        ),
    ],
)
def test_a_verb_on_the_wire(call: Call, want: tuple[object, ...]) -> None:
    outcome, (request,) = talk([reply(200, {"kind": "Pod"})], call)
    assert not isinstance(outcome, KubeError)
    got = (
        request.method,
        request.path,
        request.query,
        request.headers.get("content-type"),
        request.json,
    )
    assert got == want


def test_the_user_agent_names_the_component() -> None:
    _, (request,) = talk([reply(200, {})], get_pod, component="scheduler")
    assert request.headers["user-agent"].startswith("kubenexus/")
    assert request.headers["user-agent"].endswith(" (scheduler)")


@pytest.mark.parametrize(
    ("answer", "call", "want"),
    [
        pytest.param(
            failure(404, 'pods "p" not found'),
            get_pod,
            (Gone, 'get pods ns/p: 404 pods "p" not found'),
            id="not found",
        ),
        pytest.param(
            failure(409, "pod p is already assigned"),
            bind_pod,
            (Conflict, "bind pod ns/p to n: 409 pod p is already assigned"),
            id="bound by another client",
        ),
        pytest.param(
            reply(301, {}, Location="/elsewhere"),
            get_pod,
            (Refused, "get pods ns/p: 301 {}"),
            id="a redirect is not followed with the token in hand",
        ),
        pytest.param(
            reply(200, b'{"kind": "Po'),
            get_pod,
            (Retry, 'get pods ns/p: the answer is no JSON: \'{"kind": "Po\''),
            id="a body that is no JSON",
        ),
        pytest.param(
            reply(200, b"[]"),
            get_pod,
            (Retry, "get pods ns/p: the answer is no object but a list"),
            id="a body that is no object",
        ),
        pytest.param(fake_api.hang_up, make_pod, (Retry, "create pods ns/p: "), id="hung up"),
        pytest.param(
            fake_api.half_headers, make_pod, (Retry, "create pods ns/p: "), id="half the headers"
        ),
        pytest.param(
            fake_api.half_body, make_pod, (Retry, "create pods ns/p: "), id="half the body"
        ),
        pytest.param(
            fake_api.no_http, make_pod, (Retry, "create pods ns/p: "), id="no HTTP at all"
        ),
        pytest.param(
            fake_api.silence,
            lambda c: c.create(resources.PODS, A_POD, timeout=0.05),
            (Retry, "create pods ns/p: no answer in time"),
            id="headers that never come",
        ),
    ],
)
def test_what_a_fault_of_the_wire_means(
    answer: Answer, call: Call, want: tuple[type[KubeError], str]
) -> None:
    outcome, _ = talk([answer], call)
    assert type(outcome) is want[0]
    assert str(outcome).startswith(want[1])


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda c: c.get(resources.PODS, "p"), id="no namespace for a pod"),
        pytest.param(lambda c: c.create(resources.PODS, {}), id="none on a new pod either"),
        pytest.param(lambda c: c.get(resources.NODES, "../pods"), id="a name that climbs"),
        pytest.param(lambda c: c.get(resources.NODES, ".."), id="a name that is a step up"),
        pytest.param(lambda c: c.get(resources.NODES, ""), id="an empty name"),
        pytest.param(lambda c: c.get(resources.NODES, "a%2fb"), id="an escaped slash"),
    ],
)
def test_a_request_that_would_miss_its_object_is_never_sent(call: Call) -> None:
    outcome, requests = talk([], call)
    assert (type(outcome), requests) == (Refused, [])


def test_no_server_listens() -> None:
    async def main() -> KubeError:
        async with FakeApiServer([]) as server:
            connection = server.connection
        async with Client(connection) as client:
            with pytest.raises(KubeError) as caught:
                await get_pod(client)
        return caught.value

    assert type(asyncio.run(main())) is Retry


def test_a_client_that_is_not_open() -> None:
    async def main() -> None:
        async with FakeApiServer([]) as server:
            await get_pod(Client(server.connection))

    with pytest.raises(Refused, match="use it inside `async with`"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "patience", "want"),
    [
        pytest.param(
            [failure(429, Retry_After="2"), reply(200, {"kind": "Pod"})],
            5.0,
            ("Pod", [2.0]),
            id="waits as long as Retry-After says",
        ),
        pytest.param(
            [failure(429, Retry_After="2"), failure(429, Retry_After="2")],
            5.0,
            ("get pods ns/p: 429 words", [2.0]),
            id="but only once",
        ),
        pytest.param(
            [failure(429, Retry_After="9")],
            5.0,
            ("get pods ns/p: 429 words", []),
            id="longer than the caller's patience",
        ),
        pytest.param(
            [failure(429, Retry_After="1")],
            0.0,
            ("get pods ns/p: 429 words", []),
            id="a caller without patience",
        ),
        pytest.param(
            [failure(429)],
            5.0,
            ("get pods ns/p: 429 words", []),
            id="without Retry-After",
        ),
        pytest.param(
            [failure(503, Retry_After="1")],
            5.0,
            ("get pods ns/p: 503 words", []),
            id="a 503 may have happened: the caller decides",
        ),
    ],
)
def test_too_many_requests(
    script: list[Answer], patience: float, want: tuple[str, list[float]]
) -> None:
    waits = Waits()

    async def call(client: Client) -> str:
        pod = await client.get(resources.PODS, "p", namespace="ns", patience=patience)
        return str(pod["kind"])

    outcome, _ = talk(script, call, sleep=waits)
    assert (str(outcome), waits.durations) == want


def a_page(*names: str, more: str = "", version: str = "7") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    about = {"resourceVersion": version, "continue": more}
    return reply(200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": items})


@pytest.mark.parametrize(
    ("script", "want", "queries"),
    [
        pytest.param(
            [a_page("a", "b", more="x"), a_page("c")],
            ["a", "b", "c"],
            [
                {"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"},
                {"limit": "2", "continue": "x"},
            ],
            id="only the request for the first page has the resourceVersion",
        ),
        pytest.param(
            [a_page("a", "b", more="x"), failure(410), a_page("a", "c", "d")],
            ["a", "c", "d"],
            [
                {"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"},
                {"limit": "2", "continue": "x"},
                {"resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"},
            ],
            id="expired halfway: begins anew, in one piece",
        ),
        pytest.param(
            [failure(410)],
            "list pods ns: 410 words",
            [{"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"}],
            id="expired at once: that resourceVersion is gone for good",
        ),
        pytest.param(
            [reply(200, {"kind": "PodList", "metadata": {}, "items": None})],
            [],
            [{"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"}],
            id="an empty list whose items are null",
        ),
    ],
)
def test_a_list_in_pages(
    script: list[Answer], want: list[str] | str, queries: list[dict[str, str]]
) -> None:
    async def call(client: Client) -> list[str]:
        listing = await client.list(
            resources.PODS, namespace="ns", limit=2, resource_version="5", match="NotOlderThan"
        )
        return [item["metadata"]["name"] for item in listing.items]

    outcome, requests = talk(script, call)
    got = str(outcome) if isinstance(outcome, KubeError) else outcome
    assert (got, [request.query for request in requests]) == (want, queries)


def test_items_of_a_list_know_their_kind() -> None:
    outcome, _ = talk([a_page("a")], lambda c: c.list(resources.PODS))
    want = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}]
    assert (outcome.items, outcome.resource_version) == (want, "7")


def test_requests_keep_the_pace() -> None:
    waits = Waits()

    async def call(client: Client) -> None:
        for _ in range(5):
            await get_pod(client)

    talk([reply(200, {})] * 5, call, qps=2.0, now=lambda: 100.0, sleep=waits)
    assert waits.durations == [0.5, 1.0, 1.5]  # the requests of one second are sent at once
