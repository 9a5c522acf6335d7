"""Placeholder pods: members of a gang that its leader has not created yet."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Final

from policies.pods import requests
from scheduler.model.pod import Pod, PodKey, SchedulingSpec
from scheduler.model.resources import PODS, capped
from scheduler.model.unit import Unit, is_leader

PLACEHOLDER_UID: Final = "placeholder/"
"""Prefix of the uid of a placeholder."""

# What equal placeholders share: every field but `key` and `uid`, which come first.
_SHARED: Final = attrgetter(*(field.name for field in fields(Pod)[2:]))


def is_placeholder(pod: Pod) -> bool:
    return pod.uid.startswith(PLACEHOLDER_UID)


def placeholders(unit: Unit, count: int, spec: SchedulingSpec | None = None) -> tuple[Pod, ...]:
    """
    For members that the unit's leader will create.

    Without a `spec` a member requests what the leader states in its annotation, else what an
    existing member requests, else what the leader requests.
    """
    leader = next((pod for pod in unit.pods if is_leader(pod)), unit.pods[0])
    model = next((pod for pod in unit.pods if not is_leader(pod)), leader)
    stated = dict(leader.attributes.member_requests)
    if spec is None:
        spec = model.spec if model is not leader or not stated else spec_of(leader, stated)
    return like(model, spec, count)


def like(model: Pod, spec: SchedulingSpec, count: int, *, start: int = 0) -> tuple[Pod, ...]:
    """Placeholders for members of the model's gang, numbered from `start` on."""
    gang = model.gang
    assert gang is not None
    member = replace(gang, leader=False)
    equal = replace(model, spec=spec, gang=member, node="", assignment=None, condition=None)
    return copies(
        equal,
        (
            (f"{gang.key.name}-{number}", f"{PLACEHOLDER_UID}{gang.key}/{number}")
            for number in range(start, start + count)
        ),
    )


def copies(pod: Pod, names: Iterable[tuple[str, str]]) -> tuple[Pod, ...]:
    """The pod under other names and uids. They share all other values: there may be thousands."""
    namespace, shared = pod.key.namespace, _SHARED(pod)
    return tuple(Pod(PodKey(namespace, name), uid, *shared) for name, uid in names)


def numbered(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """A placeholder for each of these members, numbered in their order."""
    return tuple(_numbered(pod, number) for number, pod in enumerate(pods))


def _numbered(pod: Pod, number: int) -> Pod:
    assert pod.gang is not None
    if pod.uid == f"{PLACEHOLDER_UID}{pod.gang.key}/{number}":
        return pod
    return like(pod, pod.spec, 1, start=number)[0]


def spec_of(leader: Pod, member_requests: Mapping[str, int]) -> SchedulingSpec:
    """The leader's scheduling spec with the requests of a member."""
    amounts = {name: capped(count) for name, count in member_requests.items() if count > 0}
    host_request = replace(
        leader.spec.host_request,
        cpu=amounts.get("cpu", 0),
        memory=amounts.get("memory", 0),
        gpus=requests.gpus(amounts),
        containers=(),
    )
    requested = tuple(sorted({**amounts, PODS: 1}.items()))
    return replace(
        leader.spec, requests=requested, default_requests=(0, 0), host_request=host_request
    )
