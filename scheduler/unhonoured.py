"""
What a pod may ask for that this scheduler does not honour yet.

A wish that is not honoured is named here, so that the pod is refused with the wish's name rather
than placed against it. An entry leaves this module when a filter takes it up.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from policies import vocabulary

Json = Mapping[str, Any]


def asked_in_vain(spec: Json, annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The names of what is asked for in vain, each once, in a fixed order."""
    return tuple(dict.fromkeys([*_devices(spec), *_annotations(annotations)]))


def sentence(wish: str) -> str:
    return f"asks for {wish}, which this scheduler does not honour yet"


def _devices(spec: Json) -> Iterator[str]:
    if spec.get("resourceClaims"):
        yield "resource claims"


def _annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    if annotations.get(vocabulary.REQUIRE_CLIQUE_ANNOTATION) == "true":
        yield vocabulary.REQUIRE_CLIQUE_ANNOTATION
    if annotations.get(vocabulary.CO_LOCATE_ANNOTATION) == "strict":
        yield f"{vocabulary.CO_LOCATE_ANNOTATION}=strict"
    if annotations.get(vocabulary.MIN_FABRIC_TIER_ANNOTATION):
        yield vocabulary.MIN_FABRIC_TIER_ANNOTATION
