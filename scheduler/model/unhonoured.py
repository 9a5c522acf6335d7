"""
What a pod may ask for that this scheduler does not honour yet.

A wish that is not honoured is named here, so that the pod is refused with the wish's name rather
than placed against it. An entry leaves this module when a filter takes it up.
"""

from collections.abc import Iterator

from scheduler.model.fields import Json, rows


def asked_in_vain(spec: Json) -> tuple[str, ...]:
    """The names of what is asked for in vain, each once, in a fixed order."""
    return tuple(dict.fromkeys(_devices(spec)))


def sentence(wish: str) -> str:
    return f"asks for {wish}, which this scheduler does not honour yet"


def _devices(spec: Json) -> Iterator[str]:
    for row in rows(spec.get("resourceClaims")):
        if not (row.get("resourceClaimName") or row.get("resourceClaimTemplateName")):
            yield "a resource claim by neither name nor template"
