"""
RBAC: the rules of every component, the roles of the chart, and the users of a development cluster.

    component rules     what the scheduler and the webhook may do; both lists below use them
    chart roles         component -> rules in the cluster, in the release's namespace, in the
                        namespace of the dry runs; and the two roles for people
    development users   admin (system:masters), one tenant in one namespace, kwok in place of a
                        kubelet, and the two components

Plain objects as the API server takes them: this module calls no API server. No component reads
secrets except the certificate job, and only its own two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policies import vocabulary
from policies.pods import workloads

Object = dict[str, Any]
Rule = dict[str, Any]

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "update", "patch", "delete", "deletecollection")
RBAC_API: Final = "rbac.authorization.k8s.io"


def rule(group: str, resources: str, verbs: Sequence[str]) -> Rule:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


# --- component rules ---

_EVENTS: Final = (
    rule("events.k8s.io", "events", ("create", "patch", "update")),
    rule("", "events", ("create", "patch", "update")),
)

SCHEDULER_RULES: Final = (
    rule("", "nodes namespaces services", READ),
    # The scheduler binds a claim that waits for its first consumer to a volume, or writes its node.
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
    # The scheduler adds a finalizer to a device claim, then writes its allocation and its pods.
    # From Kubernetes 1.36 on the API server checks a separate subresource for the latter.
    rule("resource.k8s.io", "resourceclaims", (*READ, "patch", "update")),
    rule("resource.k8s.io", "resourceclaims/status resourceclaims/binding", ("patch", "update")),
    rule("scheduling.k8s.io", "priorityclasses podgroups workloads", READ),
    rule("scheduling.x-k8s.io", "podgroups", READ),
    rule("topology.node.k8s.io", "noderesourcetopologies", READ),
    rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", READ),
    # The scheduler stores the usage of tenants in the status.
    rule(vocabulary.POLICY_GROUP, "platformpolicies/status tenantpolicies/status", ("patch",)),
    # The scheduler records capacity reserved for later members before it binds their leader.
    rule(vocabulary.GROUP, "resourcereservations", (*READ, "create", "patch", "delete")),
    rule(vocabulary.GROUP, "resourcereservations/status", ("patch",)),
    *_EVENTS,
)

# ProvisioningRequests: a PodTemplate per kind of member, and one request per gang.
PROVISIONING_RULES: Final = (
    rule("", "podtemplates", ("get", "create", "delete")),
    rule("autoscaling.x-k8s.io", "provisioningrequests", (*READ, "create", "delete")),
)

SCHEDULER_LEASE_RULES: Final = (rule("coordination.k8s.io", "leases", ("get", "create", "update")),)

WEBHOOK_RULES: Final = (
    rule("", "namespaces", READ),
    # Admission warns about a pod that is larger than every NUMA node.
    rule("", "nodes", READ),
    # Admission warns when all reservations together exceed the capacity.
    rule(vocabulary.GROUP, "resourcereservations", ("list",)),
    # Admission checks that a user who moves a namespace to another tenant manages tenants.
    rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
    # Admission reads a pod's controller where only the controller has the size of the gang.
    *(
        rule(group, " ".join(names), ("get",))
        for group, names in workloads.resources_by_group().items()
    ),
    # Kueue queues may carry the tier of their workloads.
    rule("kueue.x-k8s.io", "localqueues clusterqueues", READ),
    rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", READ),
    rule(
        vocabulary.POLICY_GROUP,
        "platformpolicies/status tenantpolicies/status",
        ("patch", "update"),
    ),
    # The webhook keeps the rules of its own configuration in step with the policies.
    {
        **rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", (*READ, "patch")),
        "resourceNames": [vocabulary.WEBHOOK_NAME],
    },
    *_EVENTS,
)


# --- chart roles ---

CONFIGURATION: Final = "<configuration>"
SECRET: Final = "<secret>"
_CONFIGURATIONS: Final = "mutatingwebhookconfigurations validatingwebhookconfigurations"
_ADMISSION: Final = "admissionregistration.k8s.io"


def cluster_roles() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do in the whole cluster."""
    return {
        "webhook": [_with_placeholder(known) for known in WEBHOOK_RULES],
        "scheduler": list(SCHEDULER_RULES),
        "provisioning": list(PROVISIONING_RULES),
        "labeler": [rule("", "nodes", ("get", "patch"))],
        "audit": _audit(),
        "register": [
            # Nothing limits `create` to a name: the object is not there yet.
            rule(_ADMISSION, _CONFIGURATIONS, ("create",)),
            _named(rule(_ADMISSION, _CONFIGURATIONS, ("get", "patch")), CONFIGURATION),
        ],
        "cleanup": [
            _named(rule(_ADMISSION, _CONFIGURATIONS, ("delete",)), CONFIGURATION),
            rule("", "pods", ("get", "list", "patch")),
        ],
    }


def release_namespace_roles() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do in the release's namespace."""
    secrets = (SECRET, f"{SECRET}-ca")
    return {
        "scheduler": list(SCHEDULER_LEASE_RULES),
        "certificates": [
            rule("", "secrets", ("create",)),
            _named(rule("", "secrets", ("get", "update")), *secrets),
        ],
        "cleanup": [_named(rule("", "secrets", ("delete",)), *secrets)],
    }


def dry_run_namespace_roles() -> Mapping[str, Sequence[Rule]]:
    """Component -> what it may do in the namespace where the hooks create objects by dry run."""
    return {
        "register": [
            rule("", "pods", ("create",)),
            rule("batch", "jobs", ("create",)),
        ],
        "cleanup": [rule("", "pods", ("create",))],
    }


def user_roles() -> Mapping[str, Mapping[str, Any]]:
    """
    Role name -> rules, and the labels that aggregate them into a role of Kubernetes.

    A user who may edit a namespace may not reserve capacity in it: tenant managers do.
    """
    view = "rbac.authorization.k8s.io/aggregate-to-view"
    reservations = "resourcereservations"
    policies = "platformpolicies tenantpolicies"
    return {
        "view": {
            "labels": {view: "true"},
            "rules": [rule(vocabulary.GROUP, reservations, READ)],
        },
        "tenant-manager": {
            "labels": {},
            "rules": [
                rule(vocabulary.GROUP, reservations, WRITE),
                rule(vocabulary.POLICY_GROUP, policies, WRITE),
            ],
        },
    }


def _audit() -> list[Rule]:
    kinds = workloads.resources_by_group()
    return [
        rule("", "namespaces nodes pods", READ),
        *(rule(group, " ".join(names), ("get", "list")) for group, names in kinds.items()),
        rule(vocabulary.POLICY_GROUP, "platformpolicies tenantpolicies", READ),
    ]


def _named(known: Rule, *names: str) -> Rule:
    return {**known, "resourceNames": list(names)}


def _with_placeholder(known: Rule) -> Rule:
    """The chart names the webhook configurations by the release, so the template fills them in."""
    names = known.get("resourceNames")
    if names is None:
        return known
    return _named(known, *(CONFIGURATION if n == vocabulary.WEBHOOK_NAME else n for n in names))


# --- development users ---

ADMIN: Final = "admin"
TENANT: Final = "tenant"
KWOK: Final = "kwok"
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
KUBE_SCHEDULER: Final = "system:kube-scheduler"
TENANT_NAMESPACE: Final = "team-a"
TENANT_TIER: Final = "gold"


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


def development_objects() -> list[Object]:
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
