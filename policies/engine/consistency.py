"""
Contradictions between policy documents. The models check each document alone.

Faults are a name, tier, GPU model or topology level that is defined twice, a tier that no document
defines, hardware beyond a tenant's tier, a loop in the tree of tenants, and a quota set twice. A
tenant has one source, a file or an object of the API server, and a source has one tenant: so a
policy of tenant B in a file of tenant A is a fault, and a second file for A, a policy of A that
selects namespaces of B, and a namespace that both select.
"""

from collections.abc import Iterator, Mapping, Sequence

from policies import vocabulary
from policies.documents import label_selectors
from policies.documents.faults import Fault, Origin
from policies.documents.policy import PlatformPolicy, Policy, TenantPolicy
from policies.documents.yaml_reader import Step
from policies.engine.policyset import PolicyTables

Entry = tuple[Policy, Origin]


def contradictions(entries: Sequence[Entry]) -> list[Fault]:
    """All contradictions; each fault is reported at the later document."""
    return sorted(
        [
            *_names(entries),
            *_tables(entries),
            *_tier_names(entries),
            *_hardware(entries),
            *_sources(entries),
            *_selectors(entries),
            *_tree(entries),
            *_quotas(entries),
        ]
    )


def _names(entries: Sequence[Entry]) -> Iterator[Fault]:
    seen: dict[str, str] = {}
    for model, origin in entries:
        name = model.metadata.name
        if name in seen:
            message = f"a policy named {name!r} stands in {seen[name]} already; choose another name"
            yield origin.fault(("metadata", "name"), message)
        seen.setdefault(name, origin.source)


def _tables(entries: Sequence[Entry]) -> Iterator[Fault]:
    seen: dict[tuple[str, object], str] = {}
    for model, origin in entries:
        if not isinstance(model, PlatformPolicy):
            continue
        for table, key, path in _rows(model):
            if (table, key) in seen:
                yield origin.fault(path, f"{table} {key!r} is given in {seen[table, key]} already")
            seen.setdefault((table, key), f"{model.metadata.name} ({origin.source})")


def _rows(model: PlatformPolicy) -> Iterator[tuple[str, object, tuple[Step, ...]]]:
    spec = model.spec
    for index, tier in enumerate(spec.tiers):
        yield "tier", tier.name, ("spec", "tiers", index, "name")
        yield "tier rank", tier.rank, ("spec", "tiers", index, "rank")
    for index, row in enumerate(spec.priority_classes):
        yield "priority class", row.name, ("spec", "priorityClasses", index, "name")
    for index, gpu in enumerate(spec.hardware):
        for place, name in enumerate(gpu.models):
            yield "GPU model", name, ("spec", "hardware", index, "models", place)
    for index, level in enumerate(spec.topology_levels):
        yield "topology level", level.name, ("spec", "topologyLevels", index, "name")
    if spec.sharing is not None:
        yield "setting", "sharing", ("spec", "sharing")
        for index, share in enumerate(spec.sharing.tenants):
            yield "share of", share.name, ("spec", "sharing", "tenants", index, "name")
    if spec.backfill is not None:
        yield "setting", "backfill", ("spec", "backfill")
    if spec.gang is not None:
        yield "setting", "gang", ("spec", "gang")


def _tier_names(entries: Sequence[Entry]) -> Iterator[Fault]:
    known = PolicyTables.of(model for model, _ in entries).tiers
    for model, origin in entries:
        tiers: list[tuple[str, tuple[Step, ...]]] = []
        if isinstance(model, TenantPolicy):
            tiers = [(model.spec.tenant.tier or "", ("spec", "tenant", "tier"))]
        else:
            tiers = [
                (row.tier, ("spec", "priorityClasses", index, "tier"))
                for index, row in enumerate(model.spec.priority_classes)
            ]
        for tier, path in tiers:
            if tier and tier not in known:
                yield origin.fault(path, f"found {tier!r}, want one of {', '.join(known)}")


def _hardware(entries: Sequence[Entry]) -> Iterator[Fault]:
    """A tenant's rule that gives hardware which the tenant's tier may not use."""
    known = PolicyTables.of(model for model, _ in entries).tiers
    for model, origin in entries:
        tier = known.get(model.spec.tenant.tier or "") if isinstance(model, TenantPolicy) else None
        if tier is None:
            continue
        allowed = tier.hardware_tiers.allowed
        for index, rule in enumerate(model.spec.classify.hardware_tier):
            if rule.value not in allowed:
                yield origin.fault(
                    ("spec", "classify", "hardwareTier", index, "value"),
                    f"found {rule.value!r}, but tier {tier.name} may use {', '.join(allowed)}",
                )


def _sources(entries: Sequence[Entry]) -> Iterator[Fault]:
    """A tenant has one source, a file or an object, and a source has one tenant."""
    tenant_of: dict[str, str] = {}  # source -> tenant
    source_of: dict[str, str] = {}  # tenant -> source
    tier_of: dict[str, str | None] = {}
    for model, origin in entries:
        if not isinstance(model, TenantPolicy):
            continue
        name, tier = model.spec.tenant.name, model.spec.tenant.tier
        path = ("spec", "tenant", "name")
        owner = tenant_of.setdefault(origin.source, name)
        source = source_of.setdefault(name, origin.source)
        if owner != name:
            yield origin.fault(
                path,
                f"found tenant {name!r} in the file of tenant {owner!r}; a file has one"
                " tenant, so move this policy to a file of its own",
            )
        elif source != origin.source:
            yield origin.fault(
                path,
                f"tenant {name!r} has its policies in {source}; move this one there",
            )
        elif tier_of.setdefault(name, tier) != tier:
            yield origin.fault(
                ("spec", "tenant", "tier"),
                f"found {tier!r}, but another policy of tenant {name!r} sets {tier_of[name]!r}",
            )


def _selectors(entries: Sequence[Entry]) -> Iterator[Fault]:
    """A selector that selects another tenant's namespaces."""
    owner_of: dict[str, str] = {}  # namespace -> tenant
    for model, origin in entries:
        if not isinstance(model, TenantPolicy) or model.spec.namespace_selector is None:
            continue
        own = model.spec.tenant.name
        for key, values, path in _exact(model):
            for value in values:
                if key == vocabulary.TENANT_LABEL and value != own:
                    yield origin.fault(
                        path,
                        f"a policy of tenant {own!r} selects the namespaces of tenant {value!r};"
                        f" want {own!r}",
                    )
                elif (
                    key == label_selectors.NAMESPACE_NAME and owner_of.setdefault(value, own) != own
                ):
                    yield origin.fault(
                        path,
                        f"namespace {value!r} belongs to tenant {owner_of[value]!r} by that"
                        " tenant's policy; a namespace has one tenant",
                    )


def _tree(entries: Sequence[Entry]) -> Iterator[Fault]:
    """A parent that is not listed, a tenant that is a parent, and groups in a loop."""
    tenants = {m.spec.tenant.name for m, _ in entries if isinstance(m, TenantPolicy)}
    for model, origin in entries:
        if not isinstance(model, PlatformPolicy) or model.spec.sharing is None:
            continue
        shares = model.spec.sharing.tenants
        parents = {share.name: share.parent for share in shares}
        for index, share in enumerate(shares):
            path = ("spec", "sharing", "tenants", index, "parent")
            if share.parent is None:
                continue
            if share.parent not in parents:
                listed = ", ".join(sorted(parents))
                yield origin.fault(path, f"found {share.parent!r}, want one of {listed}")
            elif share.parent in tenants:
                yield origin.fault(
                    path,
                    f"{share.parent!r} is a tenant; a parent is a group without pods",
                )
            elif _loops(share.name, parents):
                yield origin.fault(path, f"{share.name!r} is among its own parents")


def _loops(name: str, parents: Mapping[str, str | None]) -> bool:
    above = parents[name]
    for _ in parents:
        if above is None or above == name:
            break
        above = parents.get(above)
    return above == name


def _quotas(entries: Sequence[Entry]) -> Iterator[Fault]:
    """A tenant's policies set each amount of its quota once."""
    seen: dict[tuple[str, str, str], str] = {}
    for model, origin in entries:
        if not isinstance(model, TenantPolicy):
            continue
        quota = model.spec.quota
        for field, amounts in (("guaranteed", quota.guaranteed), ("max", quota.max)):
            for name in amounts:
                key = (model.spec.tenant.name, field, name)
                if seen.setdefault(key, model.metadata.name) != model.metadata.name:
                    yield origin.fault(
                        ("spec", "quota", field, name),
                        f"policy {seen[key]} of the same tenant sets it already",
                    )


def _exact(model: TenantPolicy) -> Iterator[tuple[str, tuple[str, ...], tuple[Step, ...]]]:
    chosen = model.spec.namespace_selector
    if chosen is None:
        return
    for key, value in chosen.match_labels.items():
        yield key, (value,), ("spec", "namespaceSelector", "matchLabels", key)
    for index, term in enumerate(chosen.match_expressions):
        if term.operator == "In":
            path = ("spec", "namespaceSelector", "matchExpressions", index, "values")
            yield term.key, term.values, path
