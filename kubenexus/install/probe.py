"""
Objects that are made only in the mind of the API server (dry run), to see who answers.

    a plain pod      comes back stamped, or refused by a webhook of ours   --> mutation answers
    an impossible Job refused by a webhook of ours                         --> validation answers

Nothing is stored. A refusal by somebody else, a quota for example, says nothing about admission
and is passed on.
"""

from typing import Final

import orjson

from cluster import errors
from cluster.client import Client
from cluster.resources import JOBS, PODS, Resource
from policies import vocabulary
from policies.json_fields import JsonDict

# The API server names the webhook that said no.
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
# A gang of zero cannot be obeyed: no admission of this product lets it pass.
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
    """Whether a pod that is made now is seen by mutating admission."""
    try:
        made = await _dry_run(client, PODS, namespace, POD)
    except errors.Refused as exc:
        if is_denial(exc):
            return True
        raise
    return vocabulary.PROFILE_ANNOTATION in (made["metadata"].get("annotations") or {})


async def validates(client: Client, namespace: str) -> bool:
    """Whether what cannot be obeyed is refused by validating admission."""
    try:
        await _dry_run(client, JOBS, namespace, IMPOSSIBLE)
    except errors.Refused as exc:
        if is_denial(exc):
            return True
        raise
    return False


def is_denial(exc: errors.Refused) -> bool:
    """Whether a webhook of this product judged, and said no."""
    said = str(exc)
    return "admission webhook" in said and _OURS in said and "denied the request" in said


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
