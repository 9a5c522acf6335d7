"""
The topology and network requirements of a pod and its group.

    require-clique      true               the whole group in one clique
    co-locate           strict[:LEVEL]     the whole group in one domain of the level
                        preferred[:LEVEL]  there if it can be, before fewer nodes
                        none
    min-fabric-tier     a fabric type      no node with less
    network-sensitive   true, false        prefer nodes with a better fabric
    spread-zones        true, false        prefer zones with fewer pods of the same controller

A level is named as in the policies' `topologyLevels`; without a name it is the narrowest.
Admission and scheduler both read these keys here. The policies define which levels exist.
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
    """The requirements; `NO_FABRIC`: none."""

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
    fabric = fabric_type(text)
    if fabric is None:
        raise ValueError(f"found {text!r}, want one of {', '.join(vocabulary.FABRIC_TYPES)}")
    return fabric


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    vocabulary.REQUIRE_CLIQUE_ANNOTATION: _flag,
    vocabulary.CO_LOCATE_ANNOTATION: _co_locate,
    vocabulary.MIN_FABRIC_TIER_ANNOTATION: _least,
    vocabulary.NETWORK_SENSITIVE_ANNOTATION: _flag,
    vocabulary.SPREAD_ZONES_ANNOTATION: _flag,
}
"""Annotation -> how its value is read; raises `ValueError` that says what is accepted."""

KEYS: Final = tuple(vocabulary.annotation(name) for name in PARSERS)


def of(values: Mapping[str, object]) -> Fabric:
    """From the parsed values of the annotations that can be read."""
    mode, level = "", ""
    match values.get(vocabulary.CO_LOCATE_ANNOTATION):
        case (str() as mode, str() as level):
            pass
    sensitive = values.get(vocabulary.NETWORK_SENSITIVE_ANNOTATION)
    return Fabric(
        clique=values.get(vocabulary.REQUIRE_CLIQUE_ANNOTATION) is True,
        co_locate=mode,
        level=level,
        least=str(values.get(vocabulary.MIN_FABRIC_TIER_ANNOTATION) or ""),
        sensitive=sensitive if isinstance(sensitive, bool) else None,
        spread_zones=values.get(vocabulary.SPREAD_ZONES_ANNOTATION) is True,
    )
