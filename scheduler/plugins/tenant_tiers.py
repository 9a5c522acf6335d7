"""
Tenants' tiers and the hardware of nodes.

    reserved     a node with tenant.kubenexus.io/reserved-tier rejects tiers of lower rank. Where no
                 policy names that tier, the node rejects all pods: a typing error must not open a
                 node. A pod without a tier counts as one of the lowest
    allowed      a pod that requests GPUs, or a hardware tier, is kept off hardware that its
                 tenant's tier may not use; hardware of unknown tier is open to all
    preferred    the hardware tier that the pod names or was given, then those that its tenant's
                 tier prefers, in their order
    spared       high-end GPUs, for work that needs them; of GPUs with enough VRAM the smallest

Only policies and admission set limits: a pod that admission never saw has none.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from policies import vocabulary
from scheduler.columns.node_table import ABSENT, Bools, Ints, NodeTable
from scheduler.model.pod import SchedulingSpec
from scheduler.model.policy import PlacementTables, TenantTier
from scheduler.plugins.gpu_classes import CODES, GpuClasses

OPEN: Final = frozenset({"", "none"})  # values of the reserved-tier label that reserve nothing

# Points of preferences: the hardware tier decides before the others.
_TIER: Final = 200
_LESSER: Final = 15
_TIGHT: Final = 15


def rejections(
    table: NodeTable, tables: PlacementTables, hardware: GpuClasses, spec: SchedulingSpec
) -> Iterator[tuple[str, Bools]]:
    """(reason, rows), in the order of the reasons."""
    yield from _reserved(table, tables, spec)
    if not (spec.tiers.tenant and _requests_hardware(spec)):
        return
    tier = _tier(tables, spec)
    if tier is None:
        return
    closed = [code for name, code in CODES.items() if name not in tier.allowed]
    if closed:
        reason = f"node(s) had a hardware tier that {tier.name} may not use"
        yield reason, np.isin(hardware.tiers(), closed)


def _reserved(
    table: NodeTable, tables: PlacementTables, spec: SchedulingSpec
) -> Iterator[tuple[str, Bools]]:
    codes = table.codes(vocabulary.RESERVED_TIER_LABEL)
    own_rank = tables.rank(spec.tiers.tenant or vocabulary.LOWEST_TIER)
    for value, code in table.values(vocabulary.RESERVED_TIER_LABEL).items():
        name = value.lower()
        if name in OPEN:
            continue
        rank = tables.rank(name)
        if rank is None:
            yield f"node(s) reserved for tier {name}, which no policy names", codes == code
        elif own_rank is None or own_rank < rank:
            yield f"node(s) reserved for tier {name}", codes == code


def points(tables: PlacementTables, hardware: GpuClasses, spec: SchedulingSpec) -> Ints | None:
    """Points for every row; None: all rows are equal."""
    parts = [
        part
        for part in (
            _preferred_tier(tables, hardware, spec),
            _lesser(hardware, spec),
            _tight(hardware, spec),
        )
        if part is not None
    ]
    return sum(parts[1:], parts[0]) if parts else None


def _preferred_tier(
    tables: PlacementTables, hardware: GpuClasses, spec: SchedulingSpec
) -> Ints | None:
    if not _requests_hardware(spec):
        return None
    tier = _tier(tables, spec)
    named = (spec.tiers.hardware, *(tier.preferred if tier is not None else ()))
    order = [name for name in dict.fromkeys(named) if name in CODES]
    if not order:
        return None
    by_code = np.zeros(len(CODES) + 1, dtype=np.int64)
    for place, name in enumerate(order):
        by_code[CODES[name]] = _TIER * (len(order) - place) // len(order)
    return by_code[hardware.tiers()]


def _lesser(hardware: GpuClasses, spec: SchedulingSpec) -> Ints | None:
    if not spec.host_request.gpus:
        return None
    high = hardware.high_end()
    return np.where(high, np.int64(0), np.int64(_LESSER)) if high.any() else None


def _tight(hardware: GpuClasses, spec: SchedulingSpec) -> Ints | None:
    """The nearer a GPU's memory is to the request, the better."""
    if not spec.vram:
        return None
    vram = hardware.vram()
    by_row: Ints = np.minimum(_TIGHT, _TIGHT * spec.vram // np.maximum(vram, 1))
    return by_row


def _requests_hardware(spec: SchedulingSpec) -> bool:
    return spec.host_request.gpus > 0 or bool(spec.tiers.hardware)


def _tier(tables: PlacementTables, spec: SchedulingSpec) -> TenantTier | None:
    """A tier that policies no longer name counts as the lowest."""
    name = spec.tiers.tenant
    if not name:
        return None
    return tables.tiers.get(name) or tables.tiers.get(vocabulary.LOWEST_TIER)


def any_reserved(table: NodeTable) -> bool:
    """Whether a node is reserved for a tier."""
    return bool(table.values(vocabulary.RESERVED_TIER_LABEL)) and bool(
        (table.codes(vocabulary.RESERVED_TIER_LABEL) != ABSENT).any()
    )
