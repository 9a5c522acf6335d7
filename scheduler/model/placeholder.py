"""Placeholder pods: members of a gang that its leader has not created yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from policies.pods import requests
from scheduler.model.pod import Pod, PodKey, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, is_leader

PLACEHOLDER_UID: Final = "placeholder/"
"""Prefix of the uid of a placeholder."""


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
    return tuple(
        replace(
            model,
            key=PodKey(gang.key.namespace, f"{gang.key.name}-{number}"),
            uid=f"{PLACEHOLDER_UID}{gang.key}/{number}",
            spec=spec,
            gang=replace(gang, leader=False),
            node="",
            assignment=None,
            condition=None,
        )
        for number in range(start, start + count)
    )


def spec_of(leader: Pod, member_requests: Mapping[str, int]) -> SchedulingSpec:
    """The leader's scheduling spec with the requests of a member."""
    host_request = replace(
        leader.spec.host_request,
        cpu=member_requests.get("cpu", 0),
        memory=member_requests.get("memory", 0),
        gpus=requests.gpus(member_requests),
        containers=(),
    )
    amounts = tuple(sorted({**member_requests, PODS: 1}.items()))
    return replace(
        leader.spec, requests=amounts, default_requests=(0, 0), host_request=host_request
    )
