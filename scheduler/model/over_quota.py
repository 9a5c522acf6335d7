"""A quota that a unit would exceed, and the sentence that Events, conditions and `why` show."""

from dataclasses import dataclass
from typing import Final

from policies import quantity

_BORROWERS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that a request would exceed."""

    member: str
    """The tenant, or the group of tenants, that has the limit."""
    resource: str
    requested: int
    used: int
    limit: int
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class OverQuota:
    """Why quota keeps a unit waiting."""

    tenant: str
    excess: Excess
    borrowers: tuple[tuple[str, int], ...] = ()
    """Tenants of the same group above their guarantee, with the amount."""
    reserved: tuple[str, int] | None = None
    """The unit whose start needs a part of the same quota, with that amount."""
    within: str = ""
    """The part of the unit that the quota allows."""

    @property
    def text(self) -> str:
        excess = self.excess
        owner = "group" if excess.is_group else "tenant"
        counts = [f"used {self._show(excess.used)}", f"max {self._show(excess.limit)}"]
        if self.reserved is not None:
            unit, amount = self.reserved
            counts.insert(1, f"reserved for {unit} {self._show(amount)}")
        text = (
            f"tenant {self.tenant} requests {excess.resource} {self._show(excess.requested)}:"
            f" quota of {owner} {excess.member} exceeded ({', '.join(counts)})"
        )
        if self.borrowers:
            shown = self.borrowers[:_BORROWERS_SHOWN]
            listed = ", ".join(f"{name} +{self._show(amount)}" for name, amount in shown)
            text += f"; tenants above their guarantee: {listed}"
        return f"{text}; the quota allows {self.within}" if self.within else text

    def _show(self, amount: int) -> str:
        return quantity.show(self.excess.resource, amount)
