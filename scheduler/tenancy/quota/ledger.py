"""
Usage of every tenant and every group above it, against quotas and guarantees.

    charge, uncharge     a pod was placed; it is gone
    trial                charges that are undone at its end
    excess               the first limit on the path to the top that a request exceeds
    below_guarantee      a member on the path uses less of the requested resources than guaranteed
    within_guarantee     a request stays within the guarantee of a member on the path
    borrowed             usage above the guarantee; only that may be reclaimed

A pod is charged from the decision to place it until it is gone. In-flight binds and terminating
pods are therefore charged, and a limit holds at every instant. After a restart the ledger is
rebuilt from the pods. A guarantee without GPUs guarantees none: it gives pods that request GPUs no
right to go first or to reclaim. Resources that a guarantee does not name go along with those that
it names. `fairshare.shares` orders the tenants.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from policies.documents.tenancy import GPU_MODEL, HARDWARE_TIER
from policies.pods import requests
from scheduler.model.over_quota import Excess
from scheduler.tenancy.quota.tree import Amounts, Pairs, TenantNode, TenantTree

_MAX_TOUCHED: Final = 1024  # members beyond twice those in use: a standby never takes them


class Ledger:
    """Amounts in use, by tenant and by group."""

    def __init__(self, tree: TenantTree | None = None) -> None:
        self.tree = tree or TenantTree()
        self._used: dict[str, dict[str, int]] = {}
        self._own: dict[str, dict[str, int]] = {}  # tenants alone, to move to another tree
        self._trials = 0
        self._trail: list[tuple[str, Pairs, int]] = []  # charges to undo when the trial ends
        self.broken = False  # a charge broke off: `rebuild` before the next plan
        self._touched: set[str] | None = None  # members whose usage changed; None: perhaps all

    def change_tree(self, tree: TenantTree) -> None:
        """The usage stays."""
        own = self._own
        self._own = {}
        self._used = {}
        self._touched = None
        self.tree = tree
        for tenant, amounts in own.items():
            self._add(tenant, tuple(amounts.items()), +1)

    def rebuild(self, charged: Iterable[tuple[str, Pairs]]) -> None:
        """Count these charges, and no others."""
        self._own, self._used, self._touched = {}, {}, None
        self._trail.clear()
        for tenant, amounts in charged:
            self._add(tenant, amounts, +1)
        self.broken = False

    def charge(self, tenant: str, amounts: Iterable[tuple[str, int]]) -> None:
        self._move(tenant, tuple(amounts), +1)

    def uncharge(self, tenant: str, amounts: Iterable[tuple[str, int]]) -> None:
        self._move(tenant, tuple(amounts), -1)

    @property
    def in_trial(self) -> bool:
        return self._trials > 0

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undoes every charge and uncharge made inside; trials may nest."""
        mark = len(self._trail)
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1
            while len(self._trail) > mark:
                tenant, amounts, sign = self._trail.pop()
                try:
                    self._add(tenant, amounts, -sign)
                except Exception:
                    self.broken = True
                    raise

    def used(self, member: str) -> Mapping[str, int]:
        return self._used.get(member, {})

    def members(self) -> Iterable[str]:
        """Tenants and groups with usage."""
        return self._used.keys()

    def take_touched(self) -> Collection[str] | None:
        """Members whose usage may have changed since the last call; None: perhaps all."""
        touched, self._touched = self._touched, set()
        return touched

    # --- limits ---

    def excess(self, tenant: str, requested: Amounts) -> Excess | None:
        """None: the request stays within every limit from the tenant up to the top."""
        return next(self.excesses(tenant, requested), None)

    def excesses(self, tenant: str, requested: Amounts) -> Iterator[Excess]:
        """Every limit that the request exceeds, from the tenant up to the top."""
        for member in self.tree.path(tenant):
            used = self.used(member.name)
            for name, limit in member.max:
                amount = requested.get(name, 0)
                if amount > 0 and used.get(name, 0) + amount > limit:
                    is_group = member.name != tenant
                    yield Excess(member.name, name, amount, used.get(name, 0), limit, is_group)

    def remaining_of(self, member: str, resource: str) -> int | None:
        """How much more this member may use by its own limit; None: it has no limit."""
        limit = dict(self.tree.member(member).max).get(resource)
        return None if limit is None else limit - self.used(member).get(resource, 0)

    def remaining(self, tenant: str, resource: str) -> int | None:
        """How much more the tenant may use; None: no limit."""
        remaining = [
            limit - self.used(member.name).get(resource, 0)
            for member in self.tree.path(tenant)
            for name, limit in member.max
            if name == resource
        ]
        return min(remaining, default=None)

    # --- guarantees ---

    def below_guarantee(self, tenant: str, requested: Amounts) -> bool:
        """Whether a member on the path uses less of a requested resource than guaranteed."""
        has_gpus = requests.gpus(requested) > 0
        return any(
            self.used(member.name).get(name, 0) < amount
            for member in self.tree.path(tenant)
            for name, amount in member.guaranteed
            if (_counts_gpus(name) if has_gpus else requested.get(name, 0) > 0)
        )

    def within_guarantee(self, tenant: str, requested: Amounts) -> bool:
        """
        Whether the request stays within the guarantee of the tenant, or of a group above it.

        GPUs count by their kind too, where the request names the kinds of the nodes.
        """
        return any(self._within(member, requested) for member in self.tree.path(tenant))

    def _within(self, member: TenantNode, requested: Amounts) -> bool:
        used = self.used(member.name)
        named = [(name, amount) for name, amount in member.guaranteed if requested.get(name, 0) > 0]
        if requests.gpus(requested) and not any(_counts_gpus(name) for name, _ in named):
            return False
        return bool(named) and all(
            used.get(name, 0) + requested[name] <= amount for name, amount in named
        )

    def borrowed(self, member: str) -> dict[str, int]:
        """Usage above the member's guarantee, by resource."""
        guaranteed = dict(self.tree.member(member).guaranteed)
        above = {
            name: amount - guaranteed.get(name, 0) for name, amount in self.used(member).items()
        }
        return {name: amount for name, amount in sorted(above.items()) if amount > 0}

    def all_borrowed(self, tenant: str, released: Amounts) -> bool:
        """Whether the tenant, and each group above it, keeps its guarantee without the amounts."""
        for member in self.tree.path(tenant):
            used = self.used(member.name)
            for name, guaranteed in member.guaranteed:
                amount = released.get(name, 0)
                if amount > 0 and used.get(name, 0) - amount < guaranteed:
                    return False
        return True

    def breached_guarantee(
        self,
        released: Iterable[tuple[str, Amounts]],
        leaving: Iterable[tuple[str, Amounts]] = (),
    ) -> str | None:
        """
        The tenant or group that falls below its guarantee if tenants release these amounts.

        Amounts that are `leaving` no longer count as used, and breach no guarantee alone.
        """
        lost: dict[tuple[str, str], int] = {}
        for tenant, amounts in released:
            for member in self.tree.path(tenant):
                for name, amount in amounts.items():
                    key = (member.name, name)
                    lost[key] = lost.get(key, 0) + amount
        for tenant, amounts in leaving:
            for member in self.tree.path(tenant):
                for name, amount in amounts.items():
                    if (member.name, name) in lost:
                        lost[member.name, name] += amount
        for (member_name, name), amount in sorted(lost.items()):
            guaranteed = dict(self.tree.member(member_name).guaranteed).get(name, 0)
            if amount > 0 and self.used(member_name).get(name, 0) - amount < guaranteed:
                return member_name
        return None

    def borrowers(self, resource: str, *, except_for: str) -> list[tuple[str, int]]:
        """Tenants above their guarantee, and by how much; the most first."""
        amounts = [
            (name, self.borrowed(name).get(resource, 0))
            for name in self._own
            if name != except_for and name not in self.tree.groups
        ]
        return sorted((row for row in amounts if row[1] > 0), key=lambda row: (-row[1], row[0]))

    # --- state ---

    def _move(self, tenant: str, amounts: Pairs, sign: int) -> None:
        if self._trials:
            self._trail.append((tenant, amounts, sign))
        try:
            self._add(tenant, amounts, sign)
        except Exception:
            self.broken = True
            raise

    def _add(self, tenant: str, amounts: Pairs, sign: int) -> None:
        _add(self._own.setdefault(tenant, {}), amounts, sign)
        if not self._own[tenant]:
            del self._own[tenant]
        if self._touched is not None:
            self._touched.update(member.name for member in self.tree.path(tenant))
            if len(self._touched) > 2 * len(self._used) + _MAX_TOUCHED:
                self._touched = None
        for member in self.tree.path(tenant):
            used = self._used.setdefault(member.name, {})
            _add(used, amounts, sign)
            if not used:
                del self._used[member.name]

    def state(self) -> dict[str, dict[str, int]]:
        """Usage of tenants, to compare two moments."""
        return {name: dict(sorted(used.items())) for name, used in sorted(self._own.items())}


def _counts_gpus(name: str) -> bool:
    return name.startswith((GPU_MODEL, HARDWARE_TIER)) or requests.gpus({name: 1}) > 0


def _add(used: dict[str, int], amounts: Pairs, sign: int) -> None:
    for name, amount in amounts:
        total = used.get(name, 0) + sign * amount
        if total:
            used[name] = total
        else:
            used.pop(name, None)
