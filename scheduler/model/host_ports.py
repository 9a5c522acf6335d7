"""The host ports a pod binds on its node."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from scheduler.model.fields import Json, rows, whole

EVERYWHERE: Final = "0.0.0.0"


class HostPort(NamedTuple):
    protocol: str
    address: str
    number: int


def read(spec: Json) -> tuple[HostPort, ...]:
    """Sorted, each once; empty for pods that bind none."""
    found = {port for container in _running(spec) for port in _ports(spec, container)}
    return tuple(sorted(found))


def _running(spec: Json) -> Iterator[Json]:
    """The containers that run all the time: plain init containers are gone by then."""
    yield from rows(spec.get("containers"))
    for container in rows(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            yield container


def _ports(spec: Json, container: Json) -> Iterator[HostPort]:
    for row in rows(container.get("ports")):
        number = whole(row.get("hostPort"))
        # The API server fills this in; a manifest that it never saw means the same.
        if not number and spec.get("hostNetwork") is True:
            number = whole(row.get("containerPort"))
        if number > 0:
            yield HostPort(
                str(row.get("protocol") or "TCP"), str(row.get("hostIP") or EVERYWHERE), number
            )
