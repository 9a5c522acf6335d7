"""
Built-in check: the pods that an object makes fit the quota of their tenant if nothing else runs.

A pod counts by itself, a gang by as many members as must start together: the smallest ones, where
they differ. The check compares them with the max of the tenant and of every group above it. Pods
that fit an empty quota but not today's are admitted, and wait in the scheduler's queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from policies import quantity, vocabulary
from policies.documents.tenancy import Quota
from policies.engine.policyset import PolicyTables
from policies.pods import requests
from policies.pods.intent import Problem
from policies.pods.members import Member

RULE = "quota"


def check(members: Sequence[Member], tenant: str, tables: PolicyTables) -> tuple[Problem, ...]:
    """The limits that each unit exceeds even alone, each once."""
    limits = tuple(_limits(tenant, tables))
    if not limits or not members:
        return ()
    problems: list[Problem] = []
    for unit, path, rows, size in _units(members):
        for owner, resource, limit in limits:
            requested = _smallest_total(rows, size, resource)
            if requested > limit:
                problems.append(_problem(unit, path, owner, resource, requested, limit))
    return tuple(problems)


def _limits(tenant: str, tables: PolicyTables) -> Iterator[tuple[str, str, int]]:
    """(tenant or group, resource, max), the tenant's own first, then upwards."""
    shares = {share.name: share for share in tables.sharing.tenants}
    name: str | None = tenant
    for _ in range(len(shares) + 1):
        if name is None:
            return
        share = shares.get(name)
        quota = tables.quotas.get(name, Quota())
        amounts = {**(share.quota.max if share else {}), **quota.max}
        for resource, value in sorted(amounts.items()):
            yield name, resource, quantity.amount(resource, value)
        name = share.parent if share else None


_Row = tuple[Mapping[str, int], int]  # requests of one pod, and how many such pods there are


def _units(members: Sequence[Member]) -> Iterator[tuple[str, str, list[_Row], int]]:
    """(its name in messages, its path, its pods, how many must start together)."""
    gangs: dict[str, list[Member]] = {}
    for member in members:
        gang = member.intent.gang
        if gang is None:
            path = member.template.place("spec")
            yield "one pod", path, [(_amounts(member), 1)], 1
        else:
            gangs.setdefault(gang.name, []).append(member)
    for name, group in gangs.items():
        sizes = [m.intent.gang.min_available for m in group if m.intent.gang]
        size = max((number for number in sizes if number), default=1)
        # Members that other objects make are not known here, and count as 0.
        rows = [(_amounts(member), _count(member, size)) for member in group]
        yield f"group {name!r}, {size} pods,", group[0].template.place("spec"), rows, size


def _count(member: Member, size: int) -> int:
    if member.template.path == "":
        return 1
    return size if member.template.count is None else member.template.count


def _amounts(member: Member) -> Mapping[str, int]:
    try:
        return requests.effective(member.template.pod)
    except (requests.RequestError, quantity.QuantityError):
        return {}  # the API server rejects it with a message of its own


def _smallest_total(rows: Iterable[_Row], size: int, resource: str) -> int:
    """The requests of the `size` smallest pods together."""
    total, left = 0, size
    for amounts, count in sorted(rows, key=lambda row: row[0].get(resource, 0)):
        taken = min(left, count)
        total += taken * amounts.get(resource, 0)
        left -= taken
    return total


def _problem(
    unit: str, path: str, owner: str, resource: str, requested: int, limit: int
) -> Problem:
    return Problem(
        RULE,
        path,
        f"{unit} requests {_show(resource, requested)} of {resource}, above the quota of {owner}"
        f" (max {_show(resource, limit)})",
        f"request less, or have the quota of {owner} raised"
        f" ({vocabulary.POLICY_API_VERSION} TenantPolicy spec.quota.max)",
    )


def _show(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g}"
    return quantity.binary(amount) if resource == "memory" else str(amount)
