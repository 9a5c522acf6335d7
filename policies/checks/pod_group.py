"""
Built-in check: the size and the timeout of a PodGroup object.

    scheduling.k8s.io      spec.schedulingPolicy.gang.minCount
    scheduling.x-k8s.io    spec.minMember, spec.scheduleTimeoutSeconds

Pods that name a PodGroup have no size of their own, so its bound stands here. The API server has
checked the types; a value of another type counts as absent.
"""

from collections.abc import Iterator
from typing import Final

from policies import bounds
from policies.checks import gang
from policies.json_fields import Json, mapping
from policies.pods.intent import Problem

_NATIVE: Final = "scheduling.k8s.io"
_X_K8S: Final = "scheduling.x-k8s.io"

GROUPS: Final = (_NATIVE, _X_K8S)
"""API groups that have the resource `podgroups`."""


def is_pod_group(group: str, kind: str) -> bool:
    return kind == "PodGroup" and group in GROUPS


def check(obj: Json, group: str, *, largest: int) -> tuple[Problem, ...]:
    """The values above their bounds; `largest` is the largest gang that the policies allow."""
    return tuple(_problems(mapping(obj.get("spec")), group, largest))


def _problems(spec: Json, group: str, largest: int) -> Iterator[Problem]:
    if group == _NATIVE:
        policy = mapping(mapping(spec.get("schedulingPolicy")).get("gang"))
        path, size = "spec.schedulingPolicy.gang.minCount", policy.get("minCount")
    else:
        path, size = "spec.minMember", spec.get("minMember")
    if isinstance(size, int) and size > largest:
        yield gang.too_large(path, f"found {size}", largest)
    seconds = spec.get("scheduleTimeoutSeconds")
    most = bounds.DURATION.largest
    if isinstance(seconds, int) and seconds != bounds.DURATION.clamp(seconds):
        yield Problem(
            "bounds",
            "spec.scheduleTimeoutSeconds",
            f"found {seconds}, want at most {most} seconds ({bounds.DURATION.limit})",
            "lower the value or remove the field",
        )
