"""
What policies make of one request: plain values, complete enough to answer, patch, audit, explain.

Every value names the policy and the rule that it comes from. Orders are those of the policies, and
of the rules within each, so that two replicas with one policy set give equal values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from policies.documents.faults import dotted
from policies.documents.yaml_reader import Step
from policies.json_fields import Json

BUILTIN: Final = "kubenexus"  # the policy that the product's own rules belong to
MOST_CONFLICTS: Final = 64
"""Of one request that are reported: a default for each container may conflict on each of them."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """A value, and the policy and rule that gave it."""

    value: str
    policy: str
    rule: str


@dataclass(frozen=True, slots=True)
class TenantIdentity:
    """The tenant and tier of a request; `source` is where the tier comes from."""

    tenant: str
    tier: str
    source: str
    policy: str = ""


@dataclass(frozen=True, slots=True)
class PodClass:
    """The workload type and hardware tier of one pod, or of the pods of one template."""

    path: str
    workload_type: PolicyResult
    hardware_tier: PolicyResult | None = None


@dataclass(frozen=True, slots=True)
class Injection:
    """One field to write. A path that ends in `-` adds to a list."""

    path: tuple[Step, ...]
    value: Any
    policy: str
    rule: str
    override: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two policies wanted different values; the first in order was kept."""

    path: str
    kept: Any
    kept_by: str
    dropped: Any
    dropped_by: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.kept_by} sets {self.kept!r} and wins by order,"
            f" {self.dropped_by} sets {self.dropped!r}"
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that does not hold; `advisory` ones are about templates and warn at most."""

    policy: str
    rule: str
    message: str
    reason: str = "Invalid"
    path: str = ""
    fix: str = ""
    actions: tuple[str, ...] = ("Deny",)
    advisory: bool = False

    @property
    def denies(self) -> bool:
        return "Deny" in self.actions and not self.advisory

    @property
    def warns(self) -> bool:
        return "Warn" in self.actions or ("Deny" in self.actions and self.advisory)

    def line(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return f"{self.policy}/{self.rule}: {self.message}{where}" + (
            f": {self.fix}" if self.fix else ""
        )


@dataclass(frozen=True, slots=True)
class ExemptedFailure:
    """A failed rule that an exception lets pass."""

    policy: str
    rule: str
    exception: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """An expression without a value, skipped by its failurePolicy, or where it cannot matter."""

    policy: str
    rule: str
    error: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A validation that was evaluated; `passed` None: it had no value."""

    policy: str
    rule: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The whole outcome of one request under one policy set."""

    digest: str
    identity: TenantIdentity
    policies: tuple[str, ...] = ()
    pods: tuple[PodClass, ...] = ()
    injections: tuple[Injection, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failures: tuple[Failure, ...] = ()
    excepted: tuple[ExemptedFailure, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    object: Json | None = None
    """The object with every injection applied."""

    @property
    def allowed(self) -> bool:
        return not any(failure.denies for failure in self.failures)

    @property
    def denials(self) -> tuple[str, ...]:
        return tuple(failure.line() for failure in self.failures if failure.denies)

    @property
    def warnings(self) -> tuple[str, ...]:
        lines = [failure.line() for failure in self.failures if failure.warns]
        return (*lines, *(f"conflict: {conflict}" for conflict in self.conflicts))

    @property
    def workload_type(self) -> str:
        return self.pods[0].workload_type.value if self.pods else ""

    @property
    def hardware_tier(self) -> str:
        tier = self.pods[0].hardware_tier if self.pods else None
        return tier.value if tier is not None else ""

    @property
    def audit(self) -> dict[str, str]:
        """Audit annotations; the API server puts the webhook's name before each key."""
        annotations = {
            "tenant": self.identity.tenant,
            "tier": self.identity.tier,
            "workload-type": self.workload_type,
            "hardware-tier": self.hardware_tier,
            "policies": ",".join(self.policies),
            "failures": "; ".join(failure.line() for failure in self.failures),
            "exception": "; ".join(
                f"{row.policy}/{row.rule} by {row.exception}: {row.reason}" for row in self.excepted
            ),
            "skipped": "; ".join(f"{row.policy}/{row.rule}: {row.error}" for row in self.skipped),
        }
        return {key: value for key, value in annotations.items() if value}


@dataclass(slots=True)
class EvaluationBuilder:
    """Collects an `Evaluation` while the objects of a request are evaluated."""

    digest: str
    identity: TenantIdentity
    policies: dict[str, None] = field(default_factory=dict)
    pods: list[PodClass] = field(default_factory=list)
    injections: list[Injection] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    excepted: list[ExemptedFailure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def add_conflicts(self, conflicts: Iterable[Conflict]) -> None:
        """Add each conflict once, the first of them where there are many."""
        for row in conflicts:
            if len(self.conflicts) >= MOST_CONFLICTS:
                return
            if row not in self.conflicts:
                self.conflicts.append(row)

    def build(self, obj: Json | None) -> Evaluation:
        return Evaluation(
            digest=self.digest,
            identity=self.identity,
            policies=tuple(self.policies),
            pods=tuple(self.pods),
            injections=tuple(self.injections),
            conflicts=tuple(self.conflicts),
            failures=tuple(self.failures),
            excepted=tuple(self.excepted),
            skipped=tuple(self.skipped),
            outcomes=tuple(self.outcomes),
            object=obj,
        )


def where(path: tuple[Step, ...]) -> str:
    """A path for people; additions to a list show the list."""
    return dotted(path[:-1] if path and path[-1] == "-" else path)
