"""
A Service of this machine: one address, behind it as many endpoints as there are, which come and go.

    a new connection    is sent to the endpoint that has fewest
    an endpoint leaves  it gets no new connection, and those that it has stay with it

That is what a Service's rules do while a Deployment is rolled. Bytes pass as they are: TLS ends at
the endpoint.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from typing import Final, Self

from kubenexus.dev.process import ports

_PIECE: Final = 64 * 1024


class ServiceProxy:
    """Runs inside `with`, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._endpoints: tuple[int, ...] = ()
        self._open: Counter[int] = Counter()  # endpoint -> its connections
        self._clients: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="service-proxy", daemon=True)
        self._listening = threading.Event()
        self._over = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(30), f"port {self.port} is not listened on"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    def lead_to(self, *endpoints: int) -> None:
        """From now on new connections go to these."""
        self._endpoints = endpoints

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._passing, ports.HOST, self.port):
            self._listening.set()
            await self._over.wait()
        # Both sides read the end of what was closed here, and the tasks that pass bytes end.
        for client in list(self._clients):
            client.close()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def _passing(self, near: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        # As an address without endpoints does: the connection ends.
        with contextlib.closing(client), contextlib.suppress(OSError):
            if not self._endpoints:
                return
            self._clients.add(client)
            endpoint = min(self._endpoints, key=lambda port: (self._open[port], port))
            self._open[endpoint] += 1
            try:
                far, server = await asyncio.open_connection(ports.HOST, endpoint)
                with contextlib.closing(server):
                    await asyncio.gather(_pass(near, server), _pass(far, client))
            finally:
                self._open[endpoint] -= 1
                self._clients.discard(client)


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
        if not target.is_closing():
            target.write_eof()
    except OSError:  # broken off: the other direction reads the end of what is closed here
        target.close()
