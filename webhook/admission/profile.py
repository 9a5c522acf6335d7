"""
The profile annotation: the decision about a pod, as compact JSON on the pod. Pure.

Every decision writes it again, so a value that the user sets while creating a pod has no effect;
afterwards it cannot be changed.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from policies import bounds, vocabulary
from policies.engine.result import Evaluation
from policies.json_fields import mapping
from policies.pods.intent import Intent

Json = Mapping[str, Any]


def numa_by(pod: Json, evaluation: Evaluation) -> str:
    """The author of the NUMA policy: the scheduler is stricter with users than with defaults."""
    path = ("metadata", "annotations", vocabulary.NUMA_POLICY_ANNOTATION)
    for injection in evaluation.injections:
        if injection.path == path:
            return injection.policy
    # In a second round the author is in the profile of the first.
    by = mapping(read(pod).get("numa")).get("by")
    return by if isinstance(by, str) and by in evaluation.policies else "user"


def read(pod: Json) -> Json:
    """The profile on the pod, written by an earlier decision or by the user."""
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    try:
        text = bounds.JSON.text(annotations.get(vocabulary.PROFILE_ANNOTATION))
        return mapping(orjson.loads(text or "{}"))
    except orjson.JSONDecodeError:
        return {}


def text(
    evaluation: Evaluation,
    gang: tuple[str, int] | None,
    pod_intent: Intent,
    *,
    numa_by: str,
    queue: str,
) -> str:
    profile: dict[str, Any] = {
        "tenant": evaluation.identity.tenant,
        "tier": evaluation.identity.tier,
        "type": evaluation.workload_type,
        "policies": list(evaluation.policies),
        "digest": evaluation.digest[:12],
    }
    if evaluation.hardware_tier:
        profile["hardware"] = evaluation.hardware_tier
    if queue:
        profile["queue"] = queue
    if gang is not None:
        profile["gang"] = {"name": gang[0], "minAvailable": gang[1]}
    if pod_intent.numa.policy is not None:
        profile["numa"] = {"policy": pod_intent.numa.policy, "by": numa_by}
    return orjson.dumps(profile, option=orjson.OPT_SORT_KEYS).decode()
