"""
Who may do what on a development cluster.

    admin                  everything (group system:masters)
    kubenexus-scheduler    reads the cluster, binds, reports on and evicts pods, holds its lease
    kubenexus-webhook      reads namespaces, nodes, policies, queues and pods' controllers, reports,
                           keeps the rules of its own registration
    kwok                   plays the kubelet: writes the status of nodes and pods, ends deleted pods
    tenant                 a person who runs workloads in one namespace and sees nothing else

Objects as the API server takes them; nothing here talks to it. Nobody but the admin reads secrets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubenexus import rbac
from policies import vocabulary
from policies.pods import workloads

ADMIN: Final = "admin"
TENANT: Final = "tenant"
KWOK: Final = "kwok"
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
KUBE_SCHEDULER: Final = "system:kube-scheduler"
TENANT_NAMESPACE: Final = "team-a"
TENANT_TIER: Final = "gold"

Object = dict[str, Any]

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "update", "patch", "delete", "deletecollection")
RBAC_API: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


# The last two have their rights from Kubernetes itself.
USERS: Final = (
    User(ADMIN, ("system:masters",)),
    User(TENANT),
    User(vocabulary.SCHEDULER_NAME),
    User(vocabulary.WEBHOOK_NAME),
    User(KWOK),
    User(CONTROLLER_MANAGER),
    User(KUBE_SCHEDULER),
)


def rule(group: str, resources: str, verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


_EVENTS: Final = (
    rule("events.k8s.io", "events", ("create", "patch", "update")),
    rule("", "events", ("create", "patch", "update")),
)

SCHEDULER_RULES: Final = (
    rule("", "nodes namespaces services", READ),
    # A claim that waits for its first consumer is given a volume, or told its node.
    rule("", "persistentvolumes persistentvolumeclaims", (*READ, "patch", "update")),
    rule("", "replicationcontrollers", READ),
    rule("", "pods", (*READ, "update", "patch", "delete")),
    rule("", "pods/binding pods/eviction", ("create",)),
    rule("", "pods/status", ("patch", "update")),
    rule("apps", "replicasets statefulsets", READ),
    rule("batch", "jobs", READ),
    rule("policy", "poddisruptionbudgets", READ),
    rule("storage.k8s.io", "storageclasses csinodes csidrivers csistoragecapacities", READ),
    rule("storage.k8s.io", "volumeattachments", READ),
    rule("resource.k8s.io", "resourceslices deviceclasses devicetaintrules", READ),
    # A claim for devices is kept from being deleted, then given its devices and its pods. From
    # Kubernetes 1.36 on the latter is a right of its own, asked for under a name of its own.
    rule("resource.k8s.io", "resourceclaims", (*READ, "patch", "update")),
    rule("resource.k8s.io", "resourceclaims/status resourceclaims/binding", ("patch", "update")),
    rule("scheduling.k8s.io", "priorityclasses podgroups workloads", READ),
    rule("scheduling.x-k8s.io", "podgroups", READ),
    rule("topology.node.k8s.io", "noderesourcetopologies", READ),
    rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", READ),
    # What tenants used is remembered there.
    rule(vocabulary.POLICY_GROUP, "platformpolicies/status tenantpolicies/status", ("patch",)),
    # Room that is kept for members to come is written down before their leader is bound.
    rule(vocabulary.GROUP, "resourcereservations", (*READ, "create", "patch", "delete")),
    rule(vocabulary.GROUP, "resourcereservations/status", ("patch",)),
    *_EVENTS,
)

# Where nodes are asked for: a template for each kind of member, and one request a gang.
PROVISIONING_RULES: Final = (
    rule("", "podtemplates", ("get", "create", "delete")),
    rule("autoscaling.x-k8s.io", "provisioningrequests", (*READ, "create", "delete")),
)

SCHEDULER_LEASE_RULES: Final = (rule("coordination.k8s.io", "leases", ("get", "create", "update")),)

WEBHOOK_RULES: Final = (
    rule("", "namespaces", READ),
    # The largest NUMA nodes: a pod that is larger than each of them is warned about.
    rule("", "nodes", READ),
    # A reservation is compared with the others: more than there is, is warned about.
    rule(vocabulary.GROUP, "resourcereservations", ("list",)),
    # Whether somebody who moves a namespace to another tenant manages tenants.
    rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
    # A pod's controller is read where it alone says how large the pod's gang is.
    *(
        rule(group, " ".join(names), ("get",))
        for group, names in workloads.resources_by_group().items()
    ),
    # Queues of Kueue may say the tier of the work that stands in them.
    rule("kueue.x-k8s.io", "localqueues clusterqueues", READ),
    rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", READ),
    rule(
        vocabulary.POLICY_GROUP,
        "platformpolicies/status tenantpolicies/status",
        ("patch", "update"),
    ),
    # The rules of its own configuration follow the policies.
    {
        **rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", (*READ, "patch")),
        "resourceNames": [vocabulary.WEBHOOK_NAME],
    },
    *_EVENTS,
)

_KWOK_RULES: Final = (
    rule("", "nodes", (*READ, "patch", "update")),
    rule("", "nodes/status pods/status", ("patch", "update")),
    rule("", "pods", (*READ, "patch", "update", "delete")),
    rule("coordination.k8s.io", "leases", (*READ, "create", "update", "patch", "delete")),
    *_EVENTS,
)

_TENANT_RULES: Final = (
    rule("", "pods services configmaps persistentvolumeclaims", WRITE),
    rule("", "pods/log pods/status events", READ),
    rule("events.k8s.io", "events", READ),
    rule("apps", "deployments deployments/scale replicasets statefulsets", WRITE),
    rule("batch", "jobs cronjobs", WRITE),
    rule("scheduling.k8s.io", "podgroups", WRITE),
    rule("scheduling.x-k8s.io", "podgroups", WRITE),
)


def objects() -> list[Object]:
    """Namespaces, roles and bindings, in the order in which they are to be applied."""
    scheduler, webhook = vocabulary.SCHEDULER_NAME, vocabulary.WEBHOOK_NAME
    system, own = vocabulary.SYSTEM_NAMESPACE, TENANT_NAMESPACE
    tenant = f"kubenexus-dev-{TENANT}"
    labels = {vocabulary.TENANT_LABEL: own, vocabulary.TIER_LABEL: TENANT_TIER}
    return [
        _namespace(system, {}),
        _namespace(own, labels),
        *_grant(scheduler, (*SCHEDULER_RULES, *PROVISIONING_RULES), to=scheduler),
        *_grant(scheduler, SCHEDULER_LEASE_RULES, to=scheduler, namespace=system),
        *_grant(webhook, WEBHOOK_RULES, to=webhook),
        *_grant("kubenexus-dev-kwok", _KWOK_RULES, to=KWOK),
        *_grant(tenant, _TENANT_RULES, to=TENANT, namespace=own),
    ]


def _namespace(name: str, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


def _grant(
    name: str, rules: Sequence[Object], *, to: str, namespace: str | None = None
) -> tuple[Object, Object]:
    """A role and its binding: in one namespace where one is given, else in the whole cluster."""
    scope = "" if namespace else "Cluster"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    role = {
        "apiVersion": f"{RBAC_API}/v1",
        "kind": f"{scope}Role",
        "metadata": metadata,
        "rules": list(rules),
    }
    binding = {
        "apiVersion": f"{RBAC_API}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC_API, "kind": f"{scope}Role", "name": name},
        "subjects": [{"apiGroup": RBAC_API, "kind": "User", "name": to}],
    }
    return role, binding


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
    kept, policies = "resourcereservations", "platformpolicies tenantpolicies"
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
        rbac.rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", rbac.READ),
    ]


def _named(rule: Rule, *names: str) -> Rule:
    return {**rule, "resourceNames": list(names)}


def _renamed(rule: Rule) -> Rule:
    names = rule.get("resourceNames")
    if names is None:
        return rule
    return _named(rule, *(CONFIGURATION if n == vocabulary.WEBHOOK_NAME else n for n in names))
