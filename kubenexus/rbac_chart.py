"""
What each component of an installation may do: the chart's roles are made from this.

    webhook, scheduler      as on a development cluster: `kubenexus.rbac`
    provisioning            what the scheduler may do besides, where it asks for nodes
    labeler                 reads and patches nodes; which one, and which keys, an admission policy
                            of the chart holds it to
    audit                   reads what may be audited, and policies
    register, cleanup       hooks, with the rights of one command each, gone when the hook is done
    certificates            the secrets of the webhook's certificate, where a hook makes them
    people                  who looks at reservations, and who manages tenants

A name between `<` and `>` is put in by the chart.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubenexus import rbac
from policies import vocabulary
from policies.pods import workloads

Rule = dict[str, Any]

CONFIGURATION: Final = "<configuration>"
SECRET: Final = "<secret>"
_CONFIGURATIONS: Final = "mutatingwebhookconfigurations validatingwebhookconfigurations"
_ADMISSION: Final = "admissionregistration.k8s.io"


def cluster() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do in the whole cluster."""
    return {
        "webhook": [_renamed(rule) for rule in rbac.WEBHOOK_RULES],
        "scheduler": list(rbac.SCHEDULER_RULES),
        "provisioning": list(rbac.PROVISIONING_RULES),
        "labeler": [rbac.rule("", "nodes", ("get", "patch"))],
        "audit": _audit(),
        "register": [
            # Nothing limits `create` to a name: the object is not there yet.
            rbac.rule(_ADMISSION, _CONFIGURATIONS, ("create",)),
            _named(rbac.rule(_ADMISSION, _CONFIGURATIONS, ("get", "patch")), CONFIGURATION),
        ],
        "cleanup": [
            _named(rbac.rule(_ADMISSION, _CONFIGURATIONS, ("delete",)), CONFIGURATION),
            rbac.rule("", "pods", ("get", "list", "patch")),
        ],
    }


def own_namespace() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do in the release's namespace."""
    both = (SECRET, f"{SECRET}-ca")
    return {
        "scheduler": list(rbac.SCHEDULER_LEASE_RULES),
        "certificates": [
            rbac.rule("", "secrets", ("create",)),
            _named(rbac.rule("", "secrets", ("get", "update")), *both),
        ],
        "cleanup": [_named(rbac.rule("", "secrets", ("delete",)), *both)],
    }


def tried_namespace() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do where pods are tried (dry run)."""
    return {
        "register": [
            rbac.rule("", "pods", ("create",)),
            rbac.rule("batch", "jobs", ("create",)),
        ],
        "cleanup": [rbac.rule("", "pods", ("create",))],
    }


def people() -> Mapping[str, Mapping[str, Any]]:
    """
    Name -> rules, and labels by which they become part of a role of Kubernetes.

    Whoever edits a namespace keeps no room in it: that is for those who manage tenants.
    """
    view = "rbac.authorization.k8s.io/aggregate-to-view"
    kept, policies = "resourcereservations", "clusterpolicies tenantpolicies"
    return {
        "view": {
            "labels": {view: "true"},
            "rules": [rbac.rule(vocabulary.GROUP, kept, rbac.READ)],
        },
        "tenant-manager": {
            "labels": {},
            "rules": [
                rbac.rule(vocabulary.GROUP, kept, rbac.WRITE),
                rbac.rule(vocabulary.POLICY_GROUP, policies, rbac.WRITE),
            ],
        },
    }


def _audit() -> list[Rule]:
    kinds = workloads.resources_by_group()
    return [
        rbac.rule("", "namespaces nodes pods", rbac.READ),
        *(rbac.rule(group, " ".join(names), ("get", "list")) for group, names in kinds.items()),
        rbac.rule(vocabulary.POLICY_GROUP, "clusterpolicies tenantpolicies", rbac.READ),
    ]


def _named(rule: Rule, *names: str) -> Rule:
    return {**rule, "resourceNames": list(names)}


def _renamed(rule: Rule) -> Rule:
    names = rule.get("resourceNames")
    if names is None:
        return rule
    return _named(rule, *(CONFIGURATION if n == vocabulary.WEBHOOK_NAME else n for n in names))
