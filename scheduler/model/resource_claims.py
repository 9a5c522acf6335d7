"""
A pod's references to ResourceClaims: by name, or by the template of a claim of its own.

`PodResourceClaims` is a part of the scheduling spec, which all pods of one template share. The name
of a claim that kube-controller-manager creates for one pod is in that pod's status (`generated`),
so that equal pods have equal specs.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows


class ResourceClaimRef(NamedTuple):
    """An entry of spec.resourceClaims, with either `claim` or `template`."""

    name: str
    claim: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class PodResourceClaims:
    """In the order of the spec: messages name the first one that has a problem."""

    refs: tuple[ResourceClaimRef, ...] = ()


NO_RESOURCE_CLAIMS: Final = PodResourceClaims()


def read(spec: Json) -> PodResourceClaims:
    listed = spec.get("resourceClaims")
    if not listed:
        return NO_RESOURCE_CLAIMS
    return PodResourceClaims(
        tuple(
            ResourceClaimRef(
                str(row.get("name") or ""),
                str(row.get("resourceClaimName") or ""),
                str(row.get("resourceClaimTemplateName") or ""),
            )
            for row in rows(listed)
        )
    )


def generated(claims: PodResourceClaims, status: Json) -> tuple[str | None, ...]:
    """
    The name of each ref's claim: None while it does not exist, "" where none is needed.

    A claim that the spec names has that name from the start.
    """
    if claims is NO_RESOURCE_CLAIMS:
        return ()
    created = {
        str(row.get("name")): str(mapping(row).get("resourceClaimName") or "")
        for row in rows(status.get("resourceClaimStatuses"))
    }
    return tuple(ref.claim or created.get(ref.name) for ref in claims.refs)
