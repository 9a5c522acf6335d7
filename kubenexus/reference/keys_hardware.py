"""The keys about GPUs, fabric and topology, on nodes and on pods."""

from typing import Final

from kubenexus.reference.key_row import ADMIN, DISCOVERY, KUBERNETES, USER, KeyRow, each
from policies import vocabulary as v

HARDWARE: Final = (
    KeyRow(
        v.VRAM_ANNOTATION,
        "Pod annotation",
        "quantity",
        USER,
        "Memory over all GPUs of the pod; nodes whose GPUs have over 2 % less are filtered out",
    ),
    KeyRow(
        v.GFD_MEMORY_LABEL,
        "Node label",
        "mebibytes",
        DISCOVERY,
        "Memory of one GPU of the node, where no driver reports it",
    ),
    KeyRow(
        v.GPU_VRAM_LABEL,
        "Node label",
        "quantity",
        ADMIN,
        f"The same, where `{v.GFD_MEMORY_LABEL}` is missing",
    ),
    KeyRow(
        v.GPU_CLIQUE_LABEL, "Node label", "a label value", ADMIN, "Topology level, the narrowest"
    ),
    KeyRow(v.RACK_LABEL, "Node label", "a label value", ADMIN, "Topology level"),
    KeyRow(v.FABRIC_ID_LABEL, "Node label", "a label value", ADMIN, "Topology level"),
    KeyRow(v.ZONE_LABEL, "Node label", "a label value", KUBERNETES, "Topology level"),
    KeyRow(v.REGION_LABEL, "Node label", "a label value", KUBERNETES, "Topology level, the widest"),
    KeyRow(
        v.AZ_LABEL,
        "Node label",
        "a label value",
        ADMIN,
        f"The zone, where `{v.ZONE_LABEL}` is missing",
    ),
    KeyRow(
        v.FABRIC_TYPE_LABEL,
        "Node label",
        each(v.FABRIC_TYPES),
        ADMIN,
        "The network between hosts, best first; `ib`, `rdma` and `eth` are accepted too",
    ),
    KeyRow(
        v.REQUIRE_CLIQUE_ANNOTATION,
        "Pod annotation",
        "`true`, `false`",
        USER,
        "The whole gang in one clique, from the first member on",
    ),
    KeyRow(
        v.CO_LOCATE_ANNOTATION,
        "Pod annotation",
        "`strict`, `preferred`, `none`; `strict:rack` names a level",
        USER,
        "`strict`: the whole gang in one domain of the topology level; `preferred`: if one has"
        " the capacity, in preference to fewer nodes. Without a name: the narrowest level",
    ),
    KeyRow(
        v.MIN_FABRIC_TIER_ANNOTATION,
        "Pod annotation",
        each(v.FABRIC_TYPES),
        USER,
        "Nodes with a lesser fabric are filtered out for the whole gang",
    ),
    KeyRow(
        v.NETWORK_SENSITIVE_ANNOTATION,
        "Pod annotation",
        "`true`, `false`",
        USER,
        "Nodes with a better fabric are preferred; so they are for training on GPUs, unless"
        " `false`",
    ),
    KeyRow(
        v.SPREAD_ZONES_ANNOTATION,
        "Pod annotation",
        "`true`, `false`",
        USER,
        "Pods with the same labels are balanced over zones, as a preference; not for gangs",
    ),
    KeyRow(
        v.GFD_PRODUCT_LABEL,
        "Node label",
        "a model",
        DISCOVERY,
        "The model of the node's GPUs",
    ),
    KeyRow(
        v.GPU_MODEL_LABEL,
        "Node label",
        "a model",
        ADMIN,
        f"The same, where `{v.GFD_PRODUCT_LABEL}` is missing",
    ),
    KeyRow(
        v.GPU_TOPOLOGY_LABEL,
        "Node label",
        "`nvswitch`, `nvlink`, `pcie`",
        ADMIN,
        "The first two: all GPUs of the node reach each other directly",
    ),
    KeyRow(
        v.GFD_REPLICAS_LABEL,
        "Node label",
        "whole number",
        DISCOVERY,
        "Above 1 the node's GPUs are shared: the scheduler assigns none of them by index",
    ),
    *(
        KeyRow(
            name,
            "Node label",
            "whole number",
            "cluster admin or its tools",
            "`kubenexus node describe` compares it with the GPUs that the node offers",
        )
        for name in (v.GPU_COUNT_LABEL, v.GFD_COUNT_LABEL)
    ),
    KeyRow(
        v.GPU_CLASS_LABEL,
        "Node label",
        "a hardware tier, or a model in small letters",
        ADMIN,
        f"The hardware tier, where `{v.HARDWARE_TIER_LABEL}` is missing",
    ),
)
