"""
The two webhook configurations: what the API server sends, and what it never sends.

Namespaces are left out by `kubernetes.io/metadata.name`, which the API server sets and nobody
can change, so that no label can open a way around. Every field that the API server would fill
in is written out, so that what is read back is what was applied.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from policies import vocabulary, workloads

Json = dict[str, Any]

EXCLUDED_NAMESPACES: Final = ("kube-system", "kube-node-lease", vocabulary.SYSTEM_NAMESPACE)
MUTATING: Final = "mutate.pods.kubenexus.io"
VALIDATING: Final = "validate.workloads.kubenexus.io"
TIMEOUT_SECONDS: Final = 3


def configurations(
    *,
    ca_pem: bytes,
    base_url: str,
    excluded: Sequence[str] = EXCLUDED_NAMESPACES,
) -> list[Json]:
    """Both configurations for a webhook that is reached by URL."""
    ca = base64.b64encode(ca_pem).decode()

    def client(path: str) -> Json:
        return {"url": f"{base_url}{path}", "caBundle": ca}

    return [
        _configuration(
            "MutatingWebhookConfiguration",
            [
                {
                    **_webhook(MUTATING, client("/mutate"), excluded),
                    "rules": [_rule("", "v1", ["pods"], ["CREATE"])],
                    "reinvocationPolicy": "IfNeeded",
                }
            ],
        ),
        _configuration(
            "ValidatingWebhookConfiguration",
            [
                {
                    **_webhook(VALIDATING, client("/validate"), excluded),
                    "rules": _validated(),
                }
            ],
        ),
    ]


def _configuration(kind: str, webhooks: list[Json]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": vocabulary.WEBHOOK_NAME,
            "labels": {
                "app.kubernetes.io/name": "kubenexus",
                "app.kubernetes.io/component": "webhook",
            },
        },
        "webhooks": webhooks,
    }


def _webhook(name: str, client: Mapping[str, Any], excluded: Sequence[str]) -> Json:
    return {
        "name": name,
        "clientConfig": dict(client),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": list(excluded),
                }
            ]
        },
        "objectSelector": {},
    }


def _validated() -> list[Json]:
    """Rules for every kind in the workloads table, one for each API group, in order."""
    return [
        _rule(group, "*" if group else "v1", names, ["CREATE", "UPDATE"])
        for group, names in workloads.resources_by_group().items()
    ]


def _rule(group: str, version: str, resources: list[str], operations: list[str]) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        "scope": "Namespaced",
    }
