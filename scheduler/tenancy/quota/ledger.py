"""
What every tenant uses, and what its quota says to more of it.

    charge, uncharge a pod got its node, by decision or by what the API says; it left
    trial            charges that are undone at its end
    excess           the first limit on the way to the top that an amount more would break
    below            somebody on the way uses less of what is asked for than was promised
    entitled         an amount more stays within what somebody on the way was promised
    borrowed         what is used beyond the promise; nothing else may be taken back

A pod counts from the moment its placement is decided until it is gone, so that binds in flight,
and pods that are being ended, count: a limit is kept at every instant. Rebuilt from the pods after
a restart like every other book. A promise that names no GPUs promises none: it is no ground to go
first, or to take something back, for pods that ask for GPUs. Other things go along with what a
promise names. Nothing here waits or orders: see `shares` for whose turn it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from policies.documents.tenancy import GPU_MODEL, HARDWARE_TIER
from policies.pods import requests
from scheduler.model.over_quota import Excess
from scheduler.tenancy.quota.tree import Amounts, Pairs, TenantNode, TenantTree


class Ledger:
    """Amounts in use, for every tenant and every group above it."""

    def __init__(self, tree: TenantTree | None = None) -> None:
        self.tree = tree or TenantTree()
        self._used: dict[str, dict[str, int]] = {}
        self._own: dict[str, dict[str, int]] = {}  # tenants alone, to move to another tree
        self._trials = 0
        self._trail: list[tuple[str, Pairs, int]] = []  # moves to undo when the trial ends

    def regrow(self, tree: TenantTree) -> None:
        """Take over another tree; what is used stays."""
        own, self._own, self._used, self.tree = self._own, {}, {}, tree
        for tenant, amounts in own.items():
            self._add(tenant, tuple(amounts.items()), +1)

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
                self._add(tenant, amounts, -sign)

    def used(self, member: str) -> Mapping[str, int]:
        return self._used.get(member, {})

    def members(self) -> Iterable[str]:
        """Whoever uses something."""
        return self._used.keys()

    # --- limits ---

    def excess(self, tenant: str, more: Amounts) -> Excess | None:
        """None: the amounts stay within every limit from the tenant up to the top."""
        for member in self.tree.path(tenant):
            used = self.used(member.name)
            for name, limit in member.max:
                requested = more.get(name, 0)
                if requested > 0 and used.get(name, 0) + requested > limit:
                    is_group = member.name != tenant
                    return Excess(member.name, name, requested, used.get(name, 0), limit, is_group)
        return None

    def room(self, tenant: str, resource: str) -> int | None:
        """How much more of it the tenant may use; None: as much as there is."""
        left = [
            allowed - self.used(member.name).get(resource, 0)
            for member in self.tree.path(tenant)
            for name, allowed in member.max
            if name == resource
        ]
        return min(left, default=None)

    # --- promises ---

    def below(self, tenant: str, more: Amounts) -> bool:
        """Whether somebody on the way to the top uses less than was promised of what is asked."""
        asks_gpus = requests.gpus(more) > 0
        return any(
            self.used(member.name).get(name, 0) < amount
            for member in self.tree.path(tenant)
            for name, amount in member.guaranteed
            if (_counts_gpus(name) if asks_gpus else more.get(name, 0) > 0)
        )

    def entitled(self, tenant: str, more: Amounts) -> bool:
        """
        Whether the amounts stay within a promise, that of the tenant or of a group above it.

        GPUs of a kind count by that kind too, where the amounts say on which nodes they would be.
        """
        return any(self._within(member, more) for member in self.tree.path(tenant))

    def _within(self, member: TenantNode, more: Amounts) -> bool:
        used = self.used(member.name)
        asked = [(name, amount) for name, amount in member.guaranteed if more.get(name, 0) > 0]
        if requests.gpus(more) and not any(_counts_gpus(name) for name, _ in asked):
            return False
        return bool(asked) and all(
            used.get(name, 0) + more[name] <= amount for name, amount in asked
        )

    def borrowed(self, member: str) -> dict[str, int]:
        """What the member uses beyond its promise, for each resource."""
        promised = dict(self.tree.member(member).guaranteed)
        beyond = {
            name: amount - promised.get(name, 0) for name, amount in self.used(member).items()
        }
        return {name: amount for name, amount in sorted(beyond.items()) if amount > 0}

    def spares(self, tenant: str, less: Amounts) -> bool:
        """Whether giving up the amounts leaves the tenant, and groups above it, what they were
        promised: all of it was borrowed. What no promise names is borrowed."""
        for member in self.tree.path(tenant):
            used = self.used(member.name)
            for name, amount in member.guaranteed:
                taken = less.get(name, 0)
                if taken > 0 and used.get(name, 0) - taken < amount:
                    return False
        return True

    def robbed(
        self, less: Iterable[tuple[str, Amounts]], gone: Iterable[tuple[str, Amounts]] = ()
    ) -> str | None:
        """
        Who would fall below its promise if tenants gave up these amounts: a tenant or a group.

        What is `gone` is in use no more, whoever is asked.
        """
        taken: dict[tuple[str, str], int] = {}
        for tenant, amounts in less:
            for member in self.tree.path(tenant):
                for name, amount in amounts.items():
                    key = (member.name, name)
                    taken[key] = taken.get(key, 0) + amount
        for tenant, amounts in gone:
            for member in self.tree.path(tenant):
                for name, amount in amounts.items():
                    if (member.name, name) in taken:
                        taken[member.name, name] += amount
        for (who, name), amount in sorted(taken.items()):
            promised = dict(self.tree.member(who).guaranteed).get(name, 0)
            if amount > 0 and self.used(who).get(name, 0) - amount < promised:
                return who
        return None

    def borrowers(self, resource: str, *, but: str) -> list[tuple[str, int]]:
        """Tenants that use more of it than they were promised, the most first."""
        found = [
            (name, self.borrowed(name).get(resource, 0))
            for name in self._own
            if name != but and name not in self.tree.groups
        ]
        return sorted((row for row in found if row[1] > 0), key=lambda row: (-row[1], row[0]))

    # --- books ---

    def _move(self, tenant: str, amounts: Pairs, sign: int) -> None:
        if self._trials:
            self._trail.append((tenant, amounts, sign))
        self._add(tenant, amounts, sign)

    def _add(self, tenant: str, amounts: Pairs, sign: int) -> None:
        _add(self._own.setdefault(tenant, {}), amounts, sign)
        if not self._own[tenant]:
            del self._own[tenant]
        for member in self.tree.path(tenant):
            book = self._used.setdefault(member.name, {})
            _add(book, amounts, sign)
            if not book:
                del self._used[member.name]

    def state(self) -> dict[str, dict[str, int]]:
        """What tenants use, for comparing two moments."""
        return {name: dict(sorted(book.items())) for name, book in sorted(self._own.items())}


def _counts_gpus(name: str) -> bool:
    return name.startswith((GPU_MODEL, HARDWARE_TIER)) or requests.gpus({name: 1}) > 0


def _add(book: dict[str, int], pairs: Iterable[tuple[str, int]], sign: int) -> None:
    for name, amount in pairs:
        left = book.get(name, 0) + sign * amount
        if left:
            book[name] = left
        else:
            book.pop(name, None)
