"""
Every label, annotation and gate, from `policies.vocabulary`, with its values and what it does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubenexus.reference import markdown
from kubenexus.reference.key_row import ADMIN, USER, KeyRow, each
from kubenexus.reference.keys_hardware import HARDWARE
from policies import vocabulary as v
from policies.bounds import DEFAULT_GANG_SIZE, GANG_SIZE
from policies.vocabulary import Key, annotation, label

_HEADS: Final = ("Key", "On", "Values", "Written by", "What it does")
_WEBHOOK: Final = "webhook"
_SCHEDULER: Final = "scheduler"
_LABELER: Final = "labeler or cluster admin"

GANG: Final = (
    KeyRow(
        v.GANG_NAME_LABEL,
        "Pod label",
        "a label value of 1 to 63 characters",
        USER,
        "The gang that the pod belongs to. A gang is namespace and name",
    ),
    KeyRow(
        v.GANG_MIN_AVAILABLE_LABEL,
        "Pod label",
        f"whole number from 1 to {DEFAULT_GANG_SIZE}; a PlatformPolicy may allow up to"
        f" {GANG_SIZE.limit}",
        USER,
        "The scheduler places at least so many members at once, or none. Default: the number of"
        " pods that the controller makes, where it is known",
    ),
    KeyRow(
        v.GANG_ROLE_LABEL,
        "Pod label",
        each(v.GANG_ROLES),
        USER,
        "The leader is planned first. A workload with templates of one role only expects the other"
        " role elsewhere. Default `worker`",
    ),
    KeyRow(
        v.GANG_TIMEOUT_ANNOTATION,
        "Pod annotation",
        "duration; default 10s plus 50ms per member",
        USER,
        "How long the gang may take to form, and then to be bound whole",
    ),
    KeyRow(
        v.GANG_MEMBERS_ANNOTATION,
        "Pod annotation, on the leader",
        "amounts such as `cpu=4,memory=8Gi`; default: the requests of existing members, else of"
        " the leader",
        USER,
        "The requests of each member that the leader will create. The scheduler reserves their"
        " capacity with a ResourceReservation when it places the leader",
    ),
    KeyRow(
        v.GANG_GROUP_ANNOTATION,
        "Pod annotation",
        "a group's name",
        USER,
        "Names a group; without a size it delays no pod, and admission warns",
    ),
    KeyRow(
        v.GANG_GATE,
        "scheduling gate",
        "",
        "webhook, where the tenant's policy has `gang.gate`",
        "Keeps the pod out of planning; the scheduler removes it when the whole gang exists",
    ),
)
NUMA: Final = (
    KeyRow(
        v.NUMA_POLICY_ANNOTATION,
        "Pod annotation",
        each(v.NUMA_POLICIES),
        USER,
        "How the pod is placed on a host's NUMA nodes; the last three are strict",
    ),
    KeyRow(
        v.NUMA_RESOURCES_ANNOTATION,
        "Pod annotation",
        "comma list of resource names; default CPU, memory and GPUs",
        USER,
        "The resources that must be on the same NUMA nodes",
    ),
    KeyRow(
        v.NUMA_AFFINITY_ANNOTATION,
        "Pod annotation",
        "comma list of ids",
        USER,
        "NUMA nodes of each host to prefer among equals",
    ),
    KeyRow(
        v.NUMA_ANTI_AFFINITY_ANNOTATION,
        "Pod annotation",
        "comma list of ids",
        USER,
        "NUMA nodes of each host that the pod must not use",
    ),
    KeyRow(
        v.MEMORY_INTENSIVE_ANNOTATION,
        "Pod annotation",
        "`true`, `false`",
        USER,
        "Prefer NUMA nodes with high memory bandwidth; default: where a pod"
        " requests more than 16Gi, and more than 4Gi per core",
    ),
    KeyRow(
        v.NUMA_DISTANCE_WEIGHT_ANNOTATION,
        "Pod annotation",
        "0 to 100; default 50",
        USER,
        "How much the distance between the NUMA nodes of a pod lowers their score",
    ),
    KeyRow(
        v.GANG_NUMA_SPREAD_ANNOTATION,
        "Pod annotation",
        each(v.GANG_NUMA_SPREADS),
        USER,
        "How members of a gang share the NUMA nodes of a host; `isolated`: no two on one",
    ),
    KeyRow(
        v.NUMA_ASSIGNED_ANNOTATION,
        "Pod annotation",
        "JSON",
        _SCHEDULER,
        "The NUMA nodes and GPUs assigned to the pod; written with the binding",
    ),
    KeyRow(
        v.NUMA_TOPOLOGY_ANNOTATION,
        "Node annotation",
        "JSON",
        _LABELER,
        "The host's NUMA nodes and GPUs; overrides the labels below",
    ),
    KeyRow(v.NUMA_NODE_COUNT_LABEL, "Node label", "whole number", _LABELER, "Number of NUMA nodes"),
    KeyRow(
        v.numa_node_label(0, "cpus").replace("-0-", "-<i>-"),
        "Node label",
        "CPU list, ranges joined by `_`: `0-15_32-47`",
        _LABELER,
        "CPUs of one NUMA node",
    ),
    KeyRow(
        v.numa_node_label(0, "memory").replace("-0-", "-<i>-"),
        "Node label",
        "bytes or a quantity",
        _LABELER,
        "Memory of one NUMA node",
    ),
    KeyRow(
        v.numa_node_label(0, "bandwidth").replace("-0-", "-<i>-"),
        "Node label",
        "mebibytes per second",
        _LABELER,
        "Memory bandwidth of one NUMA node; set by hand where firmware does not report it",
    ),
    KeyRow(
        v.numa_node_label(0, "distance-").replace("-0-", "-<i>-") + "<j>",
        "Node label",
        "whole number, 10 for itself",
        _LABELER,
        "The distance between two NUMA nodes",
    ),
    KeyRow(
        v.gpu_numa_labels(0)[0].replace("0", "<i>"),
        "Node label",
        "a NUMA node's id",
        _LABELER,
        f"The NUMA node of a GPU; also `{v.gpu_numa_labels(0)[1].replace('0', '<i>')}`",
    ),
)
WHO: Final = (
    KeyRow(
        v.TENANT_LABEL,
        "Namespace label, Pod label",
        "a label value",
        "cluster admin on the namespace, webhook on the pod",
        "The tenant. Admission denies a pod that names another one",
    ),
    KeyRow(
        v.TIER_LABEL,
        "Namespace label, ClusterQueue label, Pod label",
        "a tier of the platform policies; shipped: " + each(v.TIERS),
        "cluster admin on namespace and ClusterQueue, webhook on the pod",
        "The tenant's tier. A pod may lower its own, never raise it",
    ),
    KeyRow(
        v.QUEUE_NAME_LABEL,
        "label of a workload or Pod",
        "a LocalQueue of the namespace",
        "user or Kueue",
        "The Kueue queue. Where neither namespace nor policy sets the tier, it comes from the label"
        f" `{v.TIER_LABEL}` of the ClusterQueue",
    ),
    KeyRow(
        v.WORKLOAD_TYPE_LABEL,
        "Pod label",
        each(v.WORKLOAD_TYPES),
        "user or webhook",
        "The kind of work; set by the user, else by classification",
    ),
    KeyRow(
        v.HARDWARE_TIER_LABEL,
        "Node label, Pod label",
        each(v.HARDWARE_TIERS),
        "cluster admin on the node, webhook on the pod",
        "Tier of the hardware: on a node its own, else that of its GPU model; on a pod the"
        " preferred one. Nodes that the tenant's tier may not use are filtered out",
    ),
    KeyRow(
        v.PROFILE_ANNOTATION,
        "Pod annotation",
        "JSON",
        _WEBHOOK,
        "The decisions of admission and their policies; the scheduler reads who set"
        " the NUMA policy",
    ),
    KeyRow(
        v.EXPECTED_DURATION_ANNOTATION,
        "Pod annotation",
        "duration",
        USER,
        "Expected run time; the scheduler uses it for backfill and estimated starts",
    ),
    KeyRow(
        v.PREEMPTIBLE_LABEL,
        "Pod label",
        "`true`, `false`",
        USER,
        "`true`: other tenants may preempt the pod while its tenant is above its guarantee",
    ),
    KeyRow(
        v.BACKFILL_LABEL,
        "Pod label",
        "`true`, `false`",
        USER,
        "`true`: with `overrun: preempt` the pod may be preempted when it overruns its expected"
        " duration",
    ),
    KeyRow(
        v.RESERVED_TIER_LABEL,
        "Node label",
        "a tier, `none`",
        ADMIN,
        "The node accepts no tier of lower rank, and none at all where no policy names the tier",
    ),
    KeyRow(
        v.SPARK_ROLE_LABEL,
        "Pod label",
        each(v.SPARK_ROLES),
        "Spark",
        "The role in a gang, where the canonical label is missing",
    ),
)
DEVELOPMENT: Final = (
    KeyRow(
        v.DEV_RUN_FOR_ANNOTATION,
        "Pod annotation",
        "duration",
        "user",
        "On a cluster of `kubenexus dev`: how long a Job's pod runs before it succeeds. In "
        "`kubenexus simulate` in virtual time: its real run time",
    ),
    KeyRow(
        v.DEV_ARRIVES_ANNOTATION,
        "Pod and workload annotation",
        "duration",
        "user",
        "In `kubenexus simulate` in virtual time: when it is created, from the beginning",
    ),
)
# The meaning and the other spellings that are read; the first is canonical.
FAMILIES: Final[tuple[tuple[str, Sequence[Key]], ...]] = (
    ("gang", v.GANG_NAME_FAMILIES),
    ("size of the gang", v.GANG_MIN_AVAILABLE_FAMILIES),
    ("NUMA policy", v.NUMA_POLICY_FAMILIES),
    ("VRAM", v.VRAM_FAMILIES),
)
# Kubernetes' own, which the scheduler reads or writes as kube-scheduler does.
STANDARD: Final = (
    label(v.HOSTNAME_LABEL),
    label(v.OS_LABEL),
    label(v.ARCH_LABEL),
    label(v.NAMESPACE_NAME_LABEL),
    annotation(v.MIRROR_ANNOTATION),
    annotation(v.SELECTED_NODE_ANNOTATION),
    annotation(v.BIND_COMPLETED_ANNOTATION),
    annotation(v.BOUND_BY_CONTROLLER_ANNOTATION),
    annotation(v.BETA_STORAGE_CLASS_ANNOTATION),
    label(v.BETA_ZONE_LABEL),
    label(v.BETA_REGION_LABEL),
)


def page() -> str:
    sections = (
        ("Gangs", GANG),
        ("NUMA", NUMA),
        ("Tenants and workloads", WHO),
        ("Hardware and topology", HARDWARE),
        ("Development clusters", DEVELOPMENT),
    )
    parts = [part for title, rows in sections for part in (f"## {title}", _table(rows))]
    return markdown.page(
        "Keys",
        "Admission denies a value that cannot be satisfied, at `kubectl apply`. Keys that the"
        " webhook writes on a pod are immutable: admission denies an update of them.",
        *parts,
        "## Other spellings",
        "Read as the first one, which admission adds. Admission denies an object on which two of"
        f" them disagree. A gang is also named by the field `{v.NATIVE_GROUP_FIELD}`; with it, with"
        f" `{v.X_K8S_POD_GROUP}` and with `{v.VOLCANO_GROUP_ANNOTATION}` its size comes from a"
        " PodGroup object of the same name (`scheduling.k8s.io` or `scheduling.x-k8s.io`).",
        markdown.table(("Meaning", "Canonical", "Also accepted"), _families()),
        f"`{'`, `'.join(v.NUMA_POLICY_ALIASES)}` as a NUMA policy means"
        f" `{'`, `'.join(v.NUMA_POLICY_ALIASES.values())}`. GPUs are counted under"
        f" {each(v.GPU_RESOURCES)}.",
        "## Kubernetes' own",
        "Read or written as kube-scheduler and the API server do: "
        + ", ".join(markdown.code(key.name) for key in STANDARD)
        + ".",
    )


def _table(rows: Iterable[KeyRow]) -> str:
    return markdown.table(_HEADS, (row._replace(key=markdown.code(row.key)) for row in rows))


def _families() -> Iterator[tuple[str, str, str]]:
    for meaning, (first, *others) in FAMILIES:
        also = (f"{other.place[:-1]} `{other.name}`" for other in others)
        yield meaning, f"{first.place[:-1]} `{first.name}`", ", ".join(also)
