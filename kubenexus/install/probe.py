"""
Create objects by dry run, to see whether admission answers.

    a plain pod         is annotated, or denied by our webhook   --> mutation answers
    an impossible Job   is denied by our webhook                 --> validation answers

Nothing is stored. A denial by another party, a quota for example, says nothing about our webhook
and is raised.
"""

from typing import Final

import orjson

from cluster import errors
from cluster.client import Client
from cluster.resources import JOBS, PODS, Resource
from policies import vocabulary
from policies.json_fields import JsonDict

# The API server names the webhook that denied the request.
_OURS: Final = ".kubenexus.io"

_CONTAINER: Final[JsonDict] = {
    "name": "probe",
    "image": "kubenexus.invalid/probe",
    "resources": {
        "requests": {"cpu": "1m", "memory": "1Mi"},
        "limits": {"cpu": "1m", "memory": "1Mi"},
    },
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
_SPEC: Final[JsonDict] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "containers": [_CONTAINER],
}
POD: Final[JsonDict] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "kubenexus-probe-"},
    "spec": _SPEC,
}
# A gang of zero pods is impossible: admission always denies it.
IMPOSSIBLE: Final[JsonDict] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "kubenexus-probe-"},
    "spec": {
        "template": {
            "metadata": {
                "labels": {
                    vocabulary.GANG_NAME_LABEL: "probe",
                    vocabulary.GANG_MIN_AVAILABLE_LABEL: "0",
                }
            },
            "spec": _SPEC,
        }
    },
}


async def mutates(client: Client, namespace: str) -> bool:
    """Whether mutating admission sees a pod that is created now."""
    try:
        made = await _dry_run(client, PODS, namespace, POD)
    except errors.Refused as exc:
        if is_denial(exc):
            return True
        raise
    return vocabulary.PROFILE_ANNOTATION in (made["metadata"].get("annotations") or {})


async def validates(client: Client, namespace: str) -> bool:
    """Whether validating admission denies an impossible Job."""
    try:
        await _dry_run(client, JOBS, namespace, IMPOSSIBLE)
    except errors.Refused as exc:
        if is_denial(exc):
            return True
        raise
    return False


def is_denial(exc: errors.Refused) -> bool:
    """Whether a webhook of this product denied the request."""
    text = str(exc)
    return "admission webhook" in text and _OURS in text and "denied the request" in text


async def _dry_run(client: Client, resource: Resource, namespace: str, obj: JsonDict) -> JsonDict:
    answer = await client.raw(
        "POST",
        resource.path(namespace),
        body=orjson.dumps(obj),
        query={"dryRun": "All"},
        action=f"try a {resource.kind} in {namespace}",
    )
    made: JsonDict = orjson.loads(answer)
    return made
