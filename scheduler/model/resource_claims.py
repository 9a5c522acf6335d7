"""
The resource claims of a pod: devices by name, or by a template from which a claim is made for it.

A `PodResourceClaims` says what all pods of one template have in common. The claim that was made for
one pod has a name of its own, which kube-controller-manager writes into the pod's status
(`generated`): equal pods keep equal shapes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.model.fields import Json, mapping, rows


class ResourceClaimRef(NamedTuple):
    """An entry of spec.resourceClaims: either `claim` or `template` is given."""

    name: str
    claim: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class PodResourceClaims:
    """In the order of the spec: the first in trouble is the one that is told about."""

    refs: tuple[ResourceClaimRef, ...] = ()


NO_RESOURCE_CLAIMS: Final = PodResourceClaims()


def read(spec: Json) -> PodResourceClaims:
    found = spec.get("resourceClaims")
    if not found:
        return NO_RESOURCE_CLAIMS
    return PodResourceClaims(
        tuple(
            ResourceClaimRef(
                str(row.get("name") or ""),
                str(row.get("resourceClaimName") or ""),
                str(row.get("resourceClaimTemplateName") or ""),
            )
            for row in rows(found)
        )
    )


def generated(wish: PodResourceClaims, status: Json) -> tuple[str | None, ...]:
    """
    The name of each ref's claim: None while nobody has made it, "" where none is needed.

    A claim that was named by the user has that name from the start.
    """
    if wish is NO_RESOURCE_CLAIMS:
        return ()
    made = {
        str(row.get("name")): str(mapping(row).get("resourceClaimName") or "")
        for row in rows(status.get("resourceClaimStatuses"))
    }
    return tuple(ref.claim or made.get(ref.name) for ref in wish.refs)
