"""
Every label, annotation, taint, gate and name that KubeNexus writes or reads, each once.

The name of a constant tells on what object the key lives (`_LABEL`, `_ANNOTATION`), its comment
which component writes and which reads it.
Where one meaning has several families of keys, the canonical key has the plain name and the
others stand in a `*_FAMILIES` tuple, in the order in which a message names them.
`policies.pods.intent` reads these keys from an object.
"""

from typing import Final, NamedTuple

GROUP: Final = "scheduling.kubenexus.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"
POLICY_GROUP: Final = "policy.kubenexus.io"
POLICY_API_VERSION: Final = f"{POLICY_GROUP}/v1alpha1"

SCHEDULER_NAME: Final = "kubenexus-scheduler"
WEBHOOK_NAME: Final = "kubenexus-webhook"
SYSTEM_NAMESPACE: Final = "kubenexus-system"


class Key(NamedTuple):
    """One spelling of a key: its field under `metadata` and its name."""

    place: str  # "labels" or "annotations", the field under `metadata`
    name: str

    def __str__(self) -> str:
        return f"{self.place[:-1]} {self.name}"


def label(name: str) -> Key:
    return Key("labels", name)


def annotation(name: str) -> Key:
    return Key("annotations", name)


# --- Gang. Written by users or policies; normalised by the webhook; read by the scheduler. ---

GANG_NAME_LABEL: Final = "pod-group.scheduling.kubenexus.io/name"
GANG_MIN_AVAILABLE_LABEL: Final = "pod-group.scheduling.kubenexus.io/min-available"
GANG_ROLE_LABEL: Final = "pod-group.scheduling.kubenexus.io/role"
GANG_TIMEOUT_ANNOTATION: Final = "pod-group.scheduling.kubenexus.io/timeout"
GANG_MEMBERS_ANNOTATION: Final = "pod-group.scheduling.kubenexus.io/member-resources"

# Names a group without a size of its own: with no size anywhere it is a locality group.
GANG_GROUP_ANNOTATION: Final = f"{GROUP}/gang-group"

# Their size comes from a PodGroup object, so a missing size is no error at admission.
X_K8S_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
NATIVE_GROUP_FIELD: Final = "spec.schedulingGroup.podGroupName"

GANG_NAME_FAMILIES: Final = (
    label(GANG_NAME_LABEL),
    label("pod-group.scheduling.sigs.k8s.io/name"),
    label("gang.scheduling.kubenexus.io/name"),
    annotation("pod-group.scheduling.sigs.k8s.io/name"),
    annotation(GANG_GROUP_ANNOTATION),
    label(X_K8S_POD_GROUP),
    annotation(X_K8S_POD_GROUP),
    annotation(VOLCANO_GROUP_ANNOTATION),
)
GANG_MIN_AVAILABLE_FAMILIES: Final = (
    label(GANG_MIN_AVAILABLE_LABEL),
    label("pod-group.scheduling.sigs.k8s.io/min-available"),
    label("pod-group.scheduling.sigs.k8s.io/min-member"),
    annotation("pod-group.scheduling.sigs.k8s.io/min-available"),
    annotation(f"{GROUP}/min-available"),
)
GANG_ROLES: Final = ("leader", "worker")

# Written by Spark on its pods; gives a gang's role where the canonical label does not.
SPARK_ROLE_LABEL: Final = "spark-role"
SPARK_ROLES: Final = {"driver": "leader", "executor": "worker"}

# Put on pods by the webhook where the tenant's policy sets it; removed by the scheduler.
GANG_GATE: Final = f"{GROUP}/gang"

# --- NUMA. Written by users or policies; read by the scheduler. ---

NUMA_POLICY_ANNOTATION: Final = "numa.scheduling.kubenexus.io/policy"
NUMA_POLICY_FAMILIES: Final = (
    annotation(NUMA_POLICY_ANNOTATION),
    annotation(f"{GROUP}/numa-policy"),
)
NUMA_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa", "isolated")
NUMA_STRICT_POLICIES: Final = frozenset({"restricted", "single-numa", "isolated"})
NUMA_POLICY_ALIASES: Final = {"single-numa-node": "single-numa"}
NUMA_RESOURCES_ANNOTATION: Final = "numa.scheduling.kubenexus.io/resources"
NUMA_AFFINITY_ANNOTATION: Final = f"{GROUP}/numa-affinity-node-id"
NUMA_ANTI_AFFINITY_ANNOTATION: Final = f"{GROUP}/numa-anti-affinity-node-id"
MEMORY_INTENSIVE_ANNOTATION: Final = f"{GROUP}/memory-intensive"
NUMA_DISTANCE_WEIGHT_ANNOTATION: Final = f"{GROUP}/numa-distance-weight"
GANG_NUMA_SPREAD_ANNOTATION: Final = f"{GROUP}/gang-numa-spread"
GANG_NUMA_SPREADS: Final = ("packed", "balanced", "isolated")

# Written by the scheduler on the Binding, so that it lands on the pod in the same write.
NUMA_ASSIGNED_ANNOTATION: Final = "numa.scheduling.kubenexus.io/assigned"

# Node data. The annotation is JSON, written by the labeler; the labels by the labeler or by hand.
NUMA_TOPOLOGY_ANNOTATION: Final = "numa.kubenexus.io/topology"
NUMA_NODE_COUNT_LABEL: Final = "numa.kubenexus.io/node-count"


def numa_node_label(index: int, fact: str) -> str:
    """`cpus`, `memory`, `bandwidth` or `distance-<j>` of one NUMA node of a host."""
    return f"numa.kubenexus.io/node-{index}-{fact}"


def gpu_numa_labels(gpu: int) -> tuple[str, str]:
    """The NUMA node of one GPU of a host, in both spellings in use."""
    return f"gpu.kubenexus.io/gpu{gpu}-numa", f"gpu.kubenexus.io/numa-node-{gpu}"


# --- Tenant and workload. The cluster admin writes on Namespaces, the webhook on Pods. ---

TENANT_LABEL: Final = "tenant.kubenexus.io/name"
TIER_LABEL: Final = "tenant.kubenexus.io/tier"
TIERS: Final = ("gold", "silver", "bronze")
LOWEST_TIER: Final = "bronze"
WORKLOAD_TYPE_LABEL: Final = "workload.kubenexus.io/type"
WORKLOAD_TYPES: Final = ("training", "inference", "batch", "service", "interactive")
HARDWARE_TIER_LABEL: Final = "hardware.kubenexus.io/tier"
HARDWARE_TIERS: Final = ("premium", "standard", "economy")
PREEMPTIBLE_LABEL: Final = "workload.kubenexus.io/preemptible"
BACKFILL_LABEL: Final = f"{GROUP}/backfill"
EXPECTED_DURATION_ANNOTATION: Final = f"{GROUP}/expected-duration"
RESERVED_TIER_LABEL: Final = "tenant.kubenexus.io/reserved-tier"

# Kueue's own, on a workload or a pod: its LocalQueue. Written by users and by
# Kueue; read by the webhook, because the queue's ClusterQueue may give the tier.
QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"

# Written by the webhook alone: compact JSON of what was decided and by which policies.
PROFILE_ANNOTATION: Final = f"{GROUP}/profile"

# --- Hardware, fabric, topology. ---

VRAM_ANNOTATION: Final = f"{GROUP}/vram-request"
VRAM_FAMILIES: Final = (
    annotation(VRAM_ANNOTATION),
    label("vram.scheduling.kubenexus.io/required"),
)
GPU_VRAM_LABEL: Final = "gpu.kubenexus.io/vram"
GPU_COUNT_LABEL: Final = "gpu.kubenexus.io/count"
GPU_MODEL_LABEL: Final = "gpu.kubenexus.io/model"
GPU_TOPOLOGY_LABEL: Final = "gpu.kubenexus.io/topology"
GFD_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GFD_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
GFD_COUNT_LABEL: Final = "nvidia.com/gpu.count"
GFD_REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
GPU_CLASS_LABEL: Final = "gpu.nvidia.com/class"
GPU_CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
FABRIC_TYPE_LABEL: Final = "network.kubenexus.io/fabric-type"
FABRIC_ID_LABEL: Final = "network.kubenexus.io/fabric-id"
RACK_LABEL: Final = "network.kubenexus.io/rack-id"
AZ_LABEL: Final = "network.kubenexus.io/az"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"

# On a pod that a kubelet runs from a file of its own: it only mirrors that file.
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

# On every Namespace, written by the API server: its name.
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

# Kubernetes' own, on claims and volumes. The scheduler writes the first on a claim to say where its
# volume shall be made, and the third on a volume that it gave to a claim; the volume controller
# writes the second when claim and volume name each other. The others are older spellings.
SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED_ANNOTATION: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION: Final = "pv.kubernetes.io/bound-by-controller"
BETA_STORAGE_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
BETA_ZONE_LABEL: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_LABEL: Final = "failure-domain.beta.kubernetes.io/region"

CO_LOCATE_ANNOTATION: Final = f"{GROUP}/co-locate"
REQUIRE_CLIQUE_ANNOTATION: Final = f"{GROUP}/require-clique"
MIN_FABRIC_TIER_ANNOTATION: Final = f"{GROUP}/min-fabric-tier"
NETWORK_SENSITIVE_ANNOTATION: Final = f"{GROUP}/network-sensitive"
SPREAD_ZONES_ANNOTATION: Final = "topology.kubenexus.io/spread-zones"

# What a network between hosts may be, best first, as FABRIC_TYPE_LABEL and
# MIN_FABRIC_TIER_ANNOTATION say it; other spellings in use.
FABRIC_TYPES: Final = ("nvswitch", "nvlink", "infiniband", "roce", "ethernet")
FABRIC_TYPE_ALIASES: Final = {"ib": "infiniband", "rdma": "roce", "eth": "ethernet"}

# Device plugins' names for whole GPUs.
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")

# --- What the webhook stamps: no other client may change it once the pod exists. ---

STAMPED: Final = (
    label(TENANT_LABEL),
    label(TIER_LABEL),
    label(WORKLOAD_TYPE_LABEL),
    label(HARDWARE_TIER_LABEL),
    label(GANG_NAME_LABEL),
    label(GANG_MIN_AVAILABLE_LABEL),
    annotation(PROFILE_ANNOTATION),
)

# What no update of a pod changes: the stamps, and every spelling of what they were made from.
UNCHANGING: Final = tuple(
    dict.fromkeys(
        (
            *STAMPED,
            *GANG_NAME_FAMILIES,
            *GANG_MIN_AVAILABLE_FAMILIES,
            label(GANG_ROLE_LABEL),
        )
    )
)

# --- Development clusters: read by the kwok stages of `kubenexus dev`. ---

# The group of the file that describes a cluster to `kubenexus simulate` and `kubenexus dev up`.
CLUSTER_FILE_API_VERSION: Final = "dev.kubenexus.io/v1alpha1"

# How long a Job's pod runs on a fake node before it succeeds: a duration.
DEV_RUN_FOR_ANNOTATION: Final = "dev.kubenexus.io/run-for"

# When a workload is created in `kubenexus simulate`, from the beginning on: a duration.
DEV_ARRIVES_ANNOTATION: Final = "dev.kubenexus.io/arrives"

# --- Messages that the documentation tells users to look for. ---

WAITING_FOR_POD_GROUP: Final = "waiting for pod group"
NO_NUMA_TOPOLOGY: Final = "no nodes with NUMA topology"
NO_SINGLE_NUMA_NODE: Final = "no single NUMA node has sufficient capacity"
INSUFFICIENT_VRAM: Final = "insufficient VRAM"
