"""What an API server serves, each resource once and in the version that it prefers."""

import asyncio
from typing import Any

import orjson
import pytest

from cluster import discovery, errors
from cluster.discovery import Served


class Server:
    """Two groups; `batch` has a second version, and one that vanishes between two questions."""

    def __init__(self, broken: str = "") -> None:
        self.broken, self.requests = broken, list[str]()

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        self.requests.append(path)
        if path == self.broken:
            raise errors.Retry(f"{path} does not answer")
        if path == "/apis/batch/v2":
            raise errors.Gone("it was removed")
        return orjson.dumps(ANSWERS[path])


def a_kind(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "namespaced": True, "verbs": ["get"], **more}


ANSWERS: dict[str, dict[str, Any]] = {
    "/apis": {
        "groups": [
            {
                "name": "batch",
                "versions": [{"version": name} for name in ("v2", "v1beta1", "v1")],
                "preferredVersion": {"version": "v1"},
            },
            {"name": "x.io", "versions": [{"version": "v1"}], "preferredVersion": {}},
        ]
    },
    "/api/v1": {"resources": [a_kind("pods", "Pod"), a_kind("nodes", "Node", namespaced=False)]},
    "/apis/batch/v1": {"resources": [a_kind("jobs", "Job")]},
    "/apis/batch/v1beta1": {"resources": [a_kind("jobs", "Job"), a_kind("crons", "Cron")]},
    "/apis/x.io/v1": {
        "resources": [a_kind("ws/scale", "Scale", group="autoscaling", version="v1")]
    },
}
GET = frozenset({"get"})


def test_each_resource_is_listed_once() -> None:
    assert asyncio.run(discovery.served(Server())) == [
        Served("", "nodes", "Node", "", "v1", False, GET),
        Served("", "pods", "Pod", "", "v1", True, GET),
        Served("batch", "crons", "Cron", "batch", "v1beta1", True, GET),
        Served("batch", "jobs", "Job", "batch", "v1", True, GET),
        Served("x.io", "ws/scale", "Scale", "autoscaling", "v1", True, GET),
    ]


def test_only_the_given_groups_are_read() -> None:
    server = Server()
    got = asyncio.run(discovery.served(server, groups={"x.io", "unknown.io"}))
    assert ([row.name for row in got], server.requests) == (
        ["ws/scale"],
        ["/apis", "/apis/x.io/v1"],
    )


def test_a_group_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(errors.Retry):
        asyncio.run(discovery.served(Server(broken="/apis/x.io/v1")))


def test_a_caller_may_go_on_without_a_group_that_does_not_answer() -> None:
    silent: list[errors.KubeError] = []
    server = Server(broken="/apis/batch/v1")
    got = asyncio.run(discovery.served(server, on_unavailable=silent.append))
    assert ([row.name for row in got], len(silent)) == (["nodes", "pods", "ws/scale"], 1)
