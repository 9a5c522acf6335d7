"""
How near a pod wants to be to the others of its group, and over what network.

    require-clique      true               the whole group in one clique
    co-locate           strict[:LEVEL]     the whole group in one domain of the level
                        preferred[:LEVEL]  there if it can be, before fewer nodes
                        none
    min-fabric-tier     a fabric type      no node with less
    network-sensitive   true, false        rather nodes with a better fabric
    spread-zones        true, false        rather zones with fewer pods of the same controller

A level is named as in the policies' `topologyLevels`; without a name the narrowest is meant.
Admission and scheduling both read these keys here. Which levels there are is not known here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from policies import vocabulary

_LEVEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_MODES: Final = {"strict": "strict", "required": "strict", "preferred": "preferred", "none": ""}


@dataclass(frozen=True, slots=True)
class Fabric:
    """What is asked; `NO_FABRIC`: nothing."""

    clique: bool = False
    co_locate: str = ""
    """`strict`, `preferred` or empty."""
    level: str = ""
    """The level of `co_locate`; empty: the narrowest."""
    least: str = ""
    """The least fabric type, in its canonical spelling."""
    sensitive: bool | None = None
    spread_zones: bool = False


NO_FABRIC: Final = Fabric()


def fabric_type(text: str) -> str | None:
    """The canonical name of a fabric type; None: there is no such type."""
    word = text.strip().lower()
    name = vocabulary.FABRIC_TYPE_ALIASES.get(word, word)
    return name if name in vocabulary.FABRIC_TYPES else None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"found {text!r}, want true or false")
    return text == "true"


def _co_locate(text: str) -> tuple[str, str]:
    mode, colon, level = text.partition(":")
    if mode not in _MODES or (colon and not (_MODES[mode] and _LEVEL.fullmatch(level))):
        raise ValueError(
            f"found {text!r}, want strict, preferred or none; strict and preferred may name a"
            " topology level, as in strict:rack"
        )
    return _MODES[mode], level


def _least(text: str) -> str:
    found = fabric_type(text)
    if found is None:
        raise ValueError(f"found {text!r}, want one of {', '.join(vocabulary.FABRIC_TYPES)}")
    return found


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    vocabulary.REQUIRE_CLIQUE_ANNOTATION: _flag,
    vocabulary.CO_LOCATE_ANNOTATION: _co_locate,
    vocabulary.MIN_FABRIC_TIER_ANNOTATION: _least,
    vocabulary.NETWORK_SENSITIVE_ANNOTATION: _flag,
    vocabulary.SPREAD_ZONES_ANNOTATION: _flag,
}
"""Annotation -> how its value is read; raises `ValueError` that says what is accepted."""

KEYS: Final = tuple(vocabulary.annotation(name) for name in PARSERS)


def of(said: Mapping[str, object]) -> Fabric:
    """From what the parsers made of those annotations that can be read."""
    mode, level = "", ""
    match said.get(vocabulary.CO_LOCATE_ANNOTATION):
        case (str() as mode, str() as level):
            pass
    sensitive = said.get(vocabulary.NETWORK_SENSITIVE_ANNOTATION)
    return Fabric(
        clique=said.get(vocabulary.REQUIRE_CLIQUE_ANNOTATION) is True,
        co_locate=mode,
        level=level,
        least=str(said.get(vocabulary.MIN_FABRIC_TIER_ANNOTATION) or ""),
        sensitive=sensitive if isinstance(sensitive, bool) else None,
        spread_zones=said.get(vocabulary.SPREAD_ZONES_ANNOTATION) is True,
    )
