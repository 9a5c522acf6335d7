"""
All policies in force at one time: immutable, in their fixed order, found by namespace and kind.

    order       platform policies by name, then tenant policies by tenant and name
    index       a label pair of the selector -> policies; selectors without one are matched in turn
    tables      tiers, priority classes, GPU models, topology levels, shares and quotas
    kinds       the kinds that policies name, as written, and the operations on them
    digest      SHA-256 over the documents: two replicas with one digest decide alike

`consistency` finds contradictions between documents before a set is made.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policies import bounds, vocabulary
from policies.documents import label_selectors
from policies.documents.policy import (
    GpuModel,
    PlatformPolicy,
    Policy,
    TenantPolicy,
    TierSpec,
    TopologyLevel,
)
from policies.documents.tenancy import Backfill, Quota, Sharing
from policies.engine.compiled import CompiledPolicy

# In force where no platform policy names tiers of its own.
_PLAIN_TIERS: Final = tuple(
    TierSpec.model_validate({"name": name, "rank": rank})
    for rank, name in enumerate(reversed(vocabulary.TIERS))
)


@dataclass(frozen=True, slots=True)
class PolicyTables:
    """The tables of the platform policies, for all tenants."""

    tiers: Mapping[str, TierSpec]
    priority_classes: Mapping[str, str]  # PriorityClass -> tier
    gpu_models: Mapping[str, GpuModel]  # name as in node labels -> what it is
    topology: tuple[TopologyLevel, ...]
    sharing: Sharing = field(default_factory=Sharing)
    backfill: Backfill = field(default_factory=Backfill)
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # tenant -> its own
    tenants: Mapping[str, str | None] = field(default_factory=dict)  # tenant -> its tier, if set
    largest_gang: int = bounds.DEFAULT_GANG_SIZE

    @classmethod
    def of(cls, models: Iterable[Policy]) -> "PolicyTables":
        documents = tuple(models)
        specs = [model.spec for model in documents if isinstance(model, PlatformPolicy)]
        tiers = [tier for spec in specs for tier in spec.tiers] or list(_PLAIN_TIERS)
        return cls(
            tiers={tier.name: tier for tier in sorted(tiers, key=lambda tier: -tier.rank)},
            priority_classes={
                row.name: row.tier for spec in specs for row in spec.priority_classes
            },
            gpu_models={
                name: row for spec in specs for row in spec.hardware for name in row.models
            },
            topology=tuple(level for spec in specs for level in spec.topology_levels),
            sharing=next((spec.sharing for spec in specs if spec.sharing), Sharing()),
            backfill=next((spec.backfill for spec in specs if spec.backfill), Backfill()),
            quotas=_quotas(documents),
            tenants={
                model.spec.tenant.name: model.spec.tenant.tier
                for model in documents
                if isinstance(model, TenantPolicy)
            },
            largest_gang=next(
                (spec.gang.max_size for spec in specs if spec.gang), bounds.DEFAULT_GANG_SIZE
            ),
        )


def _quotas(models: Iterable[Policy]) -> dict[str, Quota]:
    """A tenant may have several policies; for each resource the first that names it counts."""
    quotas: dict[str, Quota] = {}
    for model in models:
        if isinstance(model, TenantPolicy):
            name, more = model.spec.tenant.name, model.spec.quota
            known = quotas.get(name, Quota())
            quotas[name] = Quota.model_construct(
                guaranteed={**more.guaranteed, **known.guaranteed}, max={**more.max, **known.max}
            )
    return quotas


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policies in force, immutable; `of` makes it."""

    policies: tuple[CompiledPolicy, ...] = ()
    tables: PolicyTables = field(default_factory=lambda: PolicyTables.of(()))
    digest: str = ""
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """`Kind`, `group/Kind` or `*` as policies write it -> the operations that they evaluate."""
    _indexed: Mapping[label_selectors.Pair, tuple[CompiledPolicy, ...]] = field(
        default_factory=dict
    )
    _unindexed: tuple[CompiledPolicy, ...] = ()

    @classmethod
    def of(cls, policies: Iterable[CompiledPolicy]) -> "PolicySet":
        ordered = tuple(sorted(policies, key=lambda policy: policy.order))
        indexed: dict[label_selectors.Pair, list[CompiledPolicy]] = {}
        unindexed: list[CompiledPolicy] = []
        for policy in ordered:
            pairs = label_selectors.pairs(policy.selector) if policy.selector is not None else ()
            for pair in pairs:
                indexed.setdefault(pair, []).append(policy)
            if not pairs:
                unindexed.append(policy)
        models = [policy.model for policy in ordered]
        return cls(
            ordered,
            PolicyTables.of(models),
            digest(models),
            _kinds(models),
            {pair: tuple(selecting) for pair, selecting in indexed.items()},
            tuple(unindexed),
        )

    def names(self, group: str, kind: str) -> bool:
        """Whether a policy names the kind itself; `*` names none."""
        return kind in self.kinds or f"{group}/{kind}" in self.kinds

    def for_namespace(self, name: str, labels: Mapping[str, str]) -> tuple[CompiledPolicy, ...]:
        """
        The policies whose selector matches the namespace, in their order.

        A cluster-scoped request has no namespace: tenant policies skip it, platform policies
        match it with any selector, as Kubernetes' own policies do.
        """
        if not name:
            return tuple(policy for policy in self.policies if policy.tenant is None)
        known = (
            labels
            if label_selectors.NAMESPACE_NAME in labels
            else {
                **labels,
                label_selectors.NAMESPACE_NAME: name,
            }
        )
        candidates = list(self._unindexed)
        for pair in known.items():
            candidates += self._indexed.get(pair, ())
        if len(candidates) > 1:
            candidates.sort(key=lambda policy: policy.order)
        return tuple(
            policy
            for policy in candidates
            if policy.selector is None or label_selectors.matches(policy.selector, known)
        )


def _kinds(models: Iterable[Policy]) -> dict[str, frozenset[str]]:
    operations: dict[str, set[str]] = {}
    for model in models:
        constraints = model.spec.match_constraints
        for kind in constraints.kinds:
            operations.setdefault(kind, set()).update(constraints.operations)
    return {kind: frozenset(operations[kind]) for kind in sorted(operations)}


def digest(models: Iterable[Policy]) -> str:
    """SHA-256 over the contents of the documents; their formatting does not matter."""
    sha = hashlib.sha256()
    for model in models:
        contents = model.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, include={"kind", "metadata", "spec"}
        )
        contents["metadata"] = {"name": model.metadata.name}
        sha.update(json.dumps(contents, sort_keys=True, separators=(",", ":")).encode())
    return sha.hexdigest()
