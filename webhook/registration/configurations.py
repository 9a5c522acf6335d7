"""
The two webhook configurations: what the API server sends, and what it never sends.

Namespaces are left out by `kubernetes.io/metadata.name`, which the API server sets and nobody
can change, so that no label can open a way around. Every field that the API server would fill
in is written out, so that what is read back is what was applied. What policies name beyond the
product's own kinds is added to the rules of `JUDGED` by the webhook itself (`registrar`).
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policies import vocabulary
from webhook.registration import rules as sending
from webhook.registration.rules import rule

Json = dict[str, Any]

EXCLUDED_NAMESPACES: Final = ("kube-system", "kube-node-lease", vocabulary.SYSTEM_NAMESPACE)
SCHEDULER_ACCOUNT: Final = (
    f"system:serviceaccount:{vocabulary.SYSTEM_NAMESPACE}:{vocabulary.SCHEDULER_NAME}"
)
TIMEOUT_SECONDS: Final = 3
# The webhook whose rules follow the policies.
JUDGED: Final = "validate.workloads.kubenexus.io"

# Kubelets write what they run, mirror pods among it; the API server holds them to their own node.
_NOT_A_NODE: Final = {
    "name": "not-a-node",
    "expression": "!('system:nodes' in request.userInfo.groups)",
}
# Counts where a policy is for every kind, and costs next to nothing where none is.
_MAY_BE_JUDGED: Final = {"name": "may-be-judged", "expression": sending.NEVER_EXPRESSION}
_METADATA_CHANGED: Final = {
    "name": "metadata-changed",
    "expression": (
        "object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) || "
        "object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"
    ),
}

# What stands beside a policy's spec is judged by nobody.
_SPEC_CHANGED: Final = {
    "name": "spec-changed",
    "expression": "request.operation == 'CREATE' || object.?spec != oldObject.?spec",
}


def configurations(
    *,
    ca_pem: bytes,
    base_url: str,
    excluded: Sequence[str] = EXCLUDED_NAMESPACES,
    schedulers: Sequence[str] = (SCHEDULER_ACCOUNT,),
) -> list[Json]:
    """Both configurations for a webhook that is reached by URL."""
    ca = base64.b64encode(ca_pem).decode()

    def client(path: str) -> Json:
        return {"url": f"{base_url}{path}", "caBundle": ca}

    mutating = {
        **_webhook("mutate.pods", client("/mutate"), excluded),
        "rules": [rule("", ["pods"], ["CREATE"])],
        "matchConditions": [_NOT_A_NODE],
        "reinvocationPolicy": "IfNeeded",
    }
    validating = [
        {
            **_webhook(name, client("/validate"), excluded),
            "rules": rules,
            "matchConditions": conditions,
        }
        for name, rules, conditions in _validated(schedulers)
    ]
    return [
        _configuration("MutatingWebhookConfiguration", [mutating]),
        _configuration("ValidatingWebhookConfiguration", validating),
    ]


def _validated(schedulers: Sequence[str]) -> Iterator[tuple[str, list[Json], list[Json]]]:
    """Name, rules and conditions of each validating webhook.

    One a concern, because conditions count for all rules of a webhook: what changes nothing that
    is judged is sorted out by the API server itself, and is never sent.
    """
    yield "validate.workloads", sending.rules(sending.fixed()), [_NOT_A_NODE, _MAY_BE_JUDGED]
    yield (
        "validate.pod-status",
        [rule("", ["pods/status"], ["UPDATE"])],
        [_NOT_A_NODE, _METADATA_CHANGED],
    )
    # Each scheduler binds the pods that name it; asking about its own would only slow it down.
    known = ", ".join(f"'{name}'" for name in (*schedulers, "system:kube-scheduler"))
    binder = {
        "name": "not-a-scheduler",
        "expression": f"!(request.userInfo.username in [{known}])",
    }
    yield "validate.bindings", [rule("", ["pods/binding", "bindings"], ["CREATE"])], [binder]
    keys = (vocabulary.TENANT_LABEL, vocabulary.TIER_LABEL)
    moved = " || ".join(
        f"object.metadata.?labels[?'{key}'].orValue('') != "
        f"oldObject.metadata.?labels[?'{key}'].orValue('')"
        for key in keys
    )
    yield (
        "validate.namespaces",
        [rule("", ["namespaces"], ["UPDATE"], scope=sending.CLUSTER)],
        [{"name": "tenant-changed", "expression": moved}],
    )
    yield "validate.policies", [sending.POLICY_KINDS], [_SPEC_CHANGED]
    # Its own are made while a gang waits to be bound.
    yield "validate.reservations", [sending.RESERVATIONS], [binder, _SPEC_CHANGED]
    yield "validate.reservation-status", [sending.KEPT], [binder]


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
        "name": f"{name}.kubenexus.io",
        "clientConfig": dict(client),
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",  # Events about what was found
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
