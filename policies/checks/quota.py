"""
Whether what an object makes could ever run within its tenant's quota, were nothing else running.

A pod counts by itself, a gang by as many members as must start together: the smallest ones, where
they differ. Held against the tenant's own limits and those of every group above it. What does fit
an empty quota and not today's is the scheduler's business: it waits there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from policies import quantity, vocabulary
from policies.documents.tenancy import Quota
from policies.engine.policyset import PolicyTables
from policies.pods import requests
from policies.pods.intent import Problem
from policies.pods.members import Member

RULE = "quota"


def check(found: Sequence[Member], tenant: str, tables: PolicyTables) -> tuple[Problem, ...]:
    """The limits that are broken whatever else runs; each once for a unit."""
    limits = tuple(_limits(tenant, tables))
    if not limits or not found:
        return ()
    problems: list[Problem] = []
    for what, path, rows, size in _units(found):
        for whose, name, allowed in limits:
            asked = _least(rows, size, name)
            if asked > allowed:
                problems.append(_problem(what, path, whose, name, asked, allowed))
    return tuple(problems)


def _limits(tenant: str, tables: PolicyTables) -> Iterator[tuple[str, str, int]]:
    """(whose, resource, amount), the tenant's own first, then upwards."""
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


_Row = tuple[Mapping[str, int], int]  # what one pod asks for, and how many such pods there are


def _units(found: Sequence[Member]) -> Iterator[tuple[str, str, list[_Row], int]]:
    """(what it is called, where it stands, its pods, how many must start together)."""
    gangs: dict[str, list[Member]] = {}
    for member in found:
        gang = member.intent.gang
        if gang is None:
            path = member.template.place("spec")
            yield "one pod", path, [(_amounts(member), 1)], 1
        else:
            gangs.setdefault(gang.name, []).append(member)
    for name, members in gangs.items():
        stated = [m.intent.gang.min_available for m in members if m.intent.gang]
        size = max((number for number in stated if number), default=1)
        # Members that others make are not known here, and count for nothing.
        rows = [(_amounts(member), _count(member, size)) for member in members]
        yield f"group {name!r}, {size} pods,", members[0].template.place("spec"), rows, size


def _count(member: Member, size: int) -> int:
    if member.template.path == "":
        return 1
    return size if member.template.count is None else member.template.count


def _amounts(member: Member) -> Mapping[str, int]:
    try:
        return requests.effective(member.template.pod)
    except (requests.RequestError, quantity.QuantityError):
        return {}  # the API server says what is wrong with it


def _least(rows: Iterable[_Row], size: int, resource: str) -> int:
    """What the smallest so many pods ask for together."""
    total, left = 0, size
    for amounts, count in sorted(rows, key=lambda row: row[0].get(resource, 0)):
        taken = min(left, count)
        total += taken * amounts.get(resource, 0)
        left -= taken
    return total


def _problem(what: str, path: str, whose: str, resource: str, asked: int, allowed: int) -> Problem:
    return Problem(
        RULE,
        path,
        f"{what} asks for {_show(resource, asked)} of {resource}, and {whose} may use"
        f" {_show(resource, allowed)} at most",
        f"ask for less, or have the quota of {whose} raised"
        f" ({vocabulary.POLICY_API_VERSION} TenantPolicy spec.quota.max)",
    )


def _show(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g}"
    return quantity.binary(amount) if resource == "memory" else str(amount)
