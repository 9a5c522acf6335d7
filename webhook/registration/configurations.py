"""
The two webhook configurations: what the API server sends, and what it never sends.

The namespace selector excludes by `kubernetes.io/metadata.name`, which the API server sets and no
user can change, so no label bypasses admission. Every field that the API server would default is
written out, so that the object read back equals the one applied. The webhook itself adds the kinds
that policies name to the rules of `POLICY_WEBHOOK` (`rule_sync`).
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policies import vocabulary
from webhook.registration import rules
from webhook.registration.rules import rule

Json = dict[str, Any]

EXCLUDED_NAMESPACES: Final = ("kube-system", "kube-node-lease", vocabulary.SYSTEM_NAMESPACE)
SCHEDULER_ACCOUNT: Final = (
    f"system:serviceaccount:{vocabulary.SYSTEM_NAMESPACE}:{vocabulary.SCHEDULER_NAME}"
)
TIMEOUT_SECONDS: Final = 3
# The webhook whose rules follow the policies.
POLICY_WEBHOOK: Final = "validate.workloads.kubenexus.io"

# Kubelets write their pods, mirror pods included; the API server restricts them to their node.
_NOT_A_NODE: Final = {
    "name": "not-a-node",
    "expression": "!('system:nodes' in request.userInfo.groups)",
}
# Matters where a policy is for every kind; costs next to nothing otherwise.
_MAY_BE_SENT: Final = {"name": "may-be-sent", "expression": rules.NEVER_EXPRESSION}
_METADATA_CHANGED: Final = {
    "name": "metadata-changed",
    "expression": (
        "object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) || "
        "object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"
    ),
}

# Only the spec of a policy is validated.
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
    """Both configurations for a webhook with a URL."""
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
            "rules": webhook_rules,
            "matchConditions": conditions,
        }
        for name, webhook_rules, conditions in _validated(schedulers)
    ]
    return [
        _configuration("MutatingWebhookConfiguration", [mutating]),
        _configuration("ValidatingWebhookConfiguration", validating),
    ]


def _validated(schedulers: Sequence[str]) -> Iterator[tuple[str, list[Json], list[Json]]]:
    """Name, rules and conditions of each validating webhook.

    One per concern, because match conditions apply to all rules of a webhook: the API server does
    not send requests that change nothing the webhook decides on.
    """
    yield "validate.workloads", rules.rules(rules.fixed()), [_NOT_A_NODE, _MAY_BE_SENT]
    yield (
        "validate.pod-status",
        [rule("", ["pods/status"], ["UPDATE"])],
        [_NOT_A_NODE, _METADATA_CHANGED],
    )
    # Each scheduler binds the pods that name it; reviewing its own binds would only slow it down.
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
        [rule("", ["namespaces"], ["UPDATE"], scope=rules.CLUSTER)],
        [{"name": "tenant-changed", "expression": moved}],
    )
    yield "validate.policies", [rules.POLICY_KINDS], [_SPEC_CHANGED]
    # The scheduler creates its own while a gang waits to be bound.
    yield "validate.reservations", [rules.RESERVATIONS], [binder, _SPEC_CHANGED]
    yield "validate.reservation-status", [rules.RESERVATION_STATUS], [binder]


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
        "sideEffects": "NoneOnDryRun",  # Events
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
