"""What a pod asks of the pods around it: (anti-)affinity and topology spread."""

from dataclasses import dataclass
from typing import Final

from ..raw import Json


@dataclass(frozen=True, slots=True)
class PeerWish:
    """Empty: the pod does not care who else is where."""


NO_PEERS: Final = PeerWish()


def read(namespace: str, labels: tuple[tuple[str, str], ...], spec: Json) -> PeerWish:
    """The labels give `matchLabelKeys` their values."""
    return NO_PEERS
