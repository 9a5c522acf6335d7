"""Placeholder pods: members of a gang that are not created yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from policies.pods import requests
from scheduler.model.pod import Pod, PodKey, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, is_leader


def is_placeholder(pod: Pod) -> bool:
    return pod.uid.startswith(_MARK)


def placeholders(unit: Unit, count: int, spec: SchedulingSpec | None = None) -> tuple[Pod, ...]:
    """So many pods as the unit's leader is going to make."""
    leader = next((pod for pod in unit.pods if is_leader(pod)), unit.pods[0])
    model = next((pod for pod in unit.pods if not is_leader(pod)), leader)
    stated = dict(leader.attributes.member_requests)
    if spec is None:
        spec = model.spec if model is not leader or not stated else spec_of(leader, stated)
    return like(model, spec, count)


def like(model: Pod, spec: SchedulingSpec, count: int, *, start: int = 0) -> tuple[Pod, ...]:
    """Stand-ins for so many members of the model's gang, numbered from `start` on."""
    gang = model.gang
    assert gang is not None
    return tuple(
        replace(
            model,
            key=PodKey(gang.key.namespace, f"{gang.key.name}-{number}"),
            uid=f"{_MARK}{gang.key}/{number}",
            spec=spec,
            gang=replace(gang, leader=False),
            node="",
            assignment=None,
            condition=None,
        )
        for number in range(start, start + count)
    )


_MARK: Final = "stand-in/"


def spec_of(leader: Pod, stated: Mapping[str, int]) -> SchedulingSpec:
    """As the leader's, with these amounts."""
    ask = replace(
        leader.spec.host_request,
        cpu=stated.get("cpu", 0),
        memory=stated.get("memory", 0),
        gpus=requests.gpus(stated),
        containers=(),
    )
    amounts = tuple(sorted({**stated, PODS: 1}.items()))
    return replace(leader.spec, requests=amounts, default_requests=(0, 0), host_request=ask)
