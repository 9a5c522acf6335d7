"""Calls with a body take another way to the server than those without: the same rules hold."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.client import Client
from cluster.errors import KubeError, Refused
from tests.unit.cluster.fake_api import Answer, FakeApiServer, Request, failure, reply


@dataclass
class Renewed:
    """A token that is replaced once the server distrusts it."""

    token: str = "old"
    newer: str = "new"

    async def current(self) -> str | None:
        return self.token

    def distrust(self) -> None:
        self.token = self.newer


def bind(
    script: list[Answer], *, tokens: Any = None, pod: str = "p", **options: Any
) -> tuple[str, list[Request], list[float]]:
    """The outcome of the bind, the requests, and the pauses."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def main() -> tuple[str, list[Request], list[float]]:
        server = FakeApiServer(script, **({"tokens": tokens} if tokens else {}))
        async with server, Client(server.connection, sleep=sleep) as client:
            try:
                await client.bind("ns", pod, "n", **options)
                outcome = "bound"
            except KubeError as error:
                outcome = f"{type(error).__name__} {error.status}"
            return outcome, server.requests, waits

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param([reply(201)], ("bound", ["Bearer old"]), id="sends the token"),
        pytest.param(
            [failure(401), reply(201)],
            ("bound", ["Bearer old", "Bearer new"]),
            id="requests a newer one when it is refused",
        ),
        pytest.param(
            [failure(401), failure(401)],
            ("Refused 401", ["Bearer old", "Bearer new"]),
            id="but only once",
        ),
    ],
)
def test_the_token_of_a_write(script: list[Answer], want: tuple[str, list[str]]) -> None:
    outcome, requests, _ = bind(script, tokens=Renewed())
    assert (outcome, [request.headers["authorization"] for request in requests]) == want


def test_a_write_without_a_token_names_none() -> None:
    _, (request,), _ = bind([reply(201)])
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("script", "patience", "want"),
    [
        pytest.param(
            [failure(429, Retry_After="2"), reply(201)],
            5.0,
            ("bound", [2.0]),
            id="waits as long as Retry-After says",
        ),
        pytest.param([failure(429, Retry_After="2")], 0.0, ("Retry 429", []), id="no patience"),
    ],
)
def test_a_write_that_comes_too_often(
    script: list[Answer], patience: float, want: tuple[str, list[float]]
) -> None:
    outcome, _, waits = bind(script, patience=patience)
    assert (outcome, waits) == want


def test_a_token_that_would_become_a_header_is_never_sent() -> None:
    outcome, requests, _ = bind([reply(201)], tokens=Renewed(token="x\r\nImpersonate-User: admin"))
    assert (outcome, requests) == ("Refused None", [])


def test_a_path_that_would_become_a_header_is_never_sent() -> None:
    async def main() -> list[Request]:
        async with FakeApiServer([reply(200)]) as server, Client(server.connection) as client:
            with pytest.raises(Refused, match="a space or line end"):
                await client.raw("POST", "/api HTTP/1.1\r\nX: y\r\n\r\n", body=b"{}")
            return server.requests

    assert asyncio.run(main()) == []


def test_a_long_answer_comes_in_chunks() -> None:
    async def chunked(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (b'{"kind":', b'"Pod"}'):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def main() -> list[bytes]:
        async with (
            FakeApiServer([chunked, reply(200)]) as server,
            Client(server.connection) as client,
        ):
            return [await client.raw("PUT", "/x", body=b"{}") for _ in range(2)]

    assert asyncio.run(main()) == [b'{"kind":"Pod"}', b"{}"]
