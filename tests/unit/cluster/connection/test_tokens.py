"""What happens when the API server no longer takes the token."""

import asyncio
from dataclasses import dataclass

import pytest

from cluster import resources
from cluster.client import Client
from cluster.errors import KubeError, Refused
from tests.unit.cluster.fake_api import Answer, FakeApiServer, failure, reply


@dataclass
class Rotated:
    """A token source whose token is replaced by the next when distrusted."""

    line: list[str]

    async def current(self) -> str | None:
        return self.line[0]

    def distrust(self) -> None:
        if len(self.line) > 1:
            self.line.pop(0)


@pytest.mark.parametrize(
    ("tokens", "script", "want"),
    [
        pytest.param(
            ["old", "new"],
            [failure(401), reply(200, {"kind": "Pod"})],
            ("Pod", ["Bearer old", "Bearer new"]),
            id="a newer token is tried",
        ),
        pytest.param(
            ["old"],
            [failure(401)],
            ("get pods ns/p: 401 words", ["Bearer old"]),
            id="the same token is not tried again",
        ),
        pytest.param(
            ["a", "b", "c"],
            [failure(401), failure(401)],
            ("get pods ns/p: 401 words", ["Bearer a", "Bearer b"]),
            id="once, then the answer stands",
        ),
    ],
)
def test_unauthorised(tokens: list[str], script: list[Answer], want: tuple[str, list[str]]) -> None:
    async def main() -> tuple[str, list[str]]:
        source = Rotated(list(tokens))
        async with (
            FakeApiServer(script, tokens=source) as server,
            Client(server.connection) as client,
        ):
            try:
                outcome = str((await client.get(resources.PODS, "p", namespace="ns"))["kind"])
            except KubeError as error:
                outcome = str(error)
            return outcome, [request.headers["authorization"] for request in server.requests]

    assert asyncio.run(main()) == want


def test_a_watch_that_is_unauthorised_requests_a_newer_token() -> None:
    async def main() -> list[str]:
        source = Rotated(["old", "new"])
        async with (
            FakeApiServer([failure(401)], tokens=source) as server,
            Client(server.connection) as client,
        ):
            with pytest.raises(Refused):
                async with client.watch(resources.PODS, resource_version="5"):
                    raise AssertionError
        return source.line

    assert asyncio.run(main()) == ["new"]
