"""
The kinds that KubeNexus reads or writes, as places in the API: group, version, plural.

A `Resource` knows its URL path and nothing of its schema: objects stay raw dictionaries. The list
has the kinds of the product; a kind found by discovery is made with `Resource(...)`.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from cluster.errors import Refused
from policies import vocabulary

# One API object as JSON gives it: unknown fields survive because nothing models them.
Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection of the API. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path; without a namespace, the collection over all of them."""
        if name is not None and self.namespaced and namespace is None:
            raise Refused(f"{self} {name!r}: the object is namespaced and no namespace was given")
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


def _segment(name: str) -> str:
    """One path segment; a name that would change the path never becomes a request."""
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise Refused(f"{name!r} is no object name: a name is not empty and has no '/' or '%'")
    return quote(name, safe=":")


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICES: Final = Resource("", "v1", "services", "Service")
REPLICATION_CONTROLLERS: Final = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController"
)
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
PERSISTENT_VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
POD_DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)

STORAGE_CLASSES: Final = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES: Final = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"
)
VOLUME_ATTACHMENTS: Final = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)

RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
DEVICE_CLASSES: Final = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)

SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
)

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")

MUTATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)

# Requests to an autoscaler.
PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)

# Gangs of Kubernetes 1.37 and of scheduler-plugins.
POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
X_POD_GROUPS: Final = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NODE_RESOURCE_TOPOLOGIES: Final = Resource(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    namespaced=False,
)
# Queues of Kueue; informers use the version that the server prefers.
LOCAL_QUEUES: Final = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLUSTER_QUEUES: Final = Resource(
    "kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False
)

_POLICY_VERSION: Final = vocabulary.POLICY_API_VERSION.removeprefix(f"{vocabulary.POLICY_GROUP}/")
PLATFORM_POLICIES: Final = Resource(
    vocabulary.POLICY_GROUP, _POLICY_VERSION, "platformpolicies", "PlatformPolicy", namespaced=False
)
TENANT_POLICIES: Final = Resource(
    vocabulary.POLICY_GROUP, _POLICY_VERSION, "tenantpolicies", "TenantPolicy", namespaced=False
)
RESOURCE_RESERVATIONS: Final = Resource(
    vocabulary.GROUP,
    vocabulary.API_VERSION.removeprefix(f"{vocabulary.GROUP}/"),
    "resourcereservations",
    "ResourceReservation",
)
