"""The host ports a pod binds on its node."""

from typing import NamedTuple

from ..raw import Json


class Port(NamedTuple):
    protocol: str
    address: str
    number: int


def read(spec: Json) -> tuple[Port, ...]:
    """Sorted, each once; empty for pods that bind none."""
    return ()
