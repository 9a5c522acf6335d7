"""
A policy document with every expression compiled: what `evaluate` runs, request after request.

Values only, immutable and shared by all threads; `compiler` makes them when policies are loaded.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from policies.cel.field_usage import WHOLE, ReachableFields, together
from policies.cel.protocol import PartialActivation, Program
from policies.documents.policy import Policy, TenantPolicy
from policies.documents.rules import Action, Exemption, Selector
from policies.engine.result import Outcome

# Rules that a TenantPolicy has by its `gang` and `numa` fields; exceptions may name them.
GANG_MAX: Final = "gang-max-size"
GANG_MIN: Final = "gang-min-size"
NUMA_ALLOWED: Final = "numa-allowed"
BUILT_IN: Final = frozenset({GANG_MAX, GANG_MIN, NUMA_ALLOWED})
# Listed with the variables that a policy reads: an expression names this field of the metadata.
MANAGED: Final = "managedFields"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One expression, ready to run; `needs` are the variables that it reads."""

    field: str
    program: Program
    needs: tuple[str, ...] = ()


class Joined:
    """
    Several expressions as one, which costs an engine little more than each alone.

    Compiled at first use, because many policies are never used; None where that fails. It only
    saves work: without a clear result the caller evaluates the expressions one by one.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Compiled | None]) -> None:
        self._make: Callable[[], Compiled | None] | None = make
        self._made: Compiled | None = None

    def get(self) -> Compiled | None:
        make = self._make
        if make is not None:
            # Two threads may both compile it; either result serves.
            self._made = make()
            self._make = None
        return self._made


NOT_JOINED: Final = Joined(lambda: None)
"""For callers that need every expression evaluated."""


class Reached:
    """What programs reach of their objects; computed at first use."""

    __slots__ = ("_programs", "_view")

    def __init__(self, programs: Iterable[Program]) -> None:
        self._programs: tuple[Program, ...] = tuple(programs)
        self._view: ReachableFields | None = None

    def get(self) -> ReachableFields:
        if self._view is None:
            views = (
                program.reads() if isinstance(program, PartialActivation) else WHOLE
                for program in self._programs
            )
            self._view = together(tuple(views))
        return self._view


@dataclass(frozen=True, slots=True)
class Setting:
    """One field that a default fills in: a plain value, or an expression that gives it."""

    shape: Literal["value", "item", "resource"]
    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class CompiledDefault:
    rule: str
    when: Compiled | None
    override: bool
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class CompiledValidation:
    rule: str
    expression: Compiled
    message: str
    message_expression: Compiled | None
    reason: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class CompiledException:
    model: Exemption
    when: Compiled

    def covers(self, rule: str) -> bool:
        return not self.model.validations or rule in self.model.validations


@dataclass(frozen=True, slots=True)
class ClassifyRule:
    """One classification rule: a value, and when it holds."""

    rule: str
    when: Compiled
    value: str


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Everything that a policy does to a request."""

    name: str
    model: Policy
    source: str
    selector: Selector | None
    conditions: tuple[Compiled, ...]
    variables: Mapping[str, Compiled]
    workload_types: tuple[ClassifyRule, ...]
    hardware_tiers: tuple[ClassifyRule, ...]
    defaults: tuple[CompiledDefault, ...]
    validations: tuple[CompiledValidation, ...]
    exceptions: tuple[CompiledException, ...]
    facts: frozenset[str]  # the variables of `ADMISSION` that its expressions read, and `MANAGED`
    reached_before_validation: Reached  # what conditions, classification and defaults reach
    reached: Reached  # the same, validations and exceptions included
    all_pass: Joined  # true when every validation holds
    all_passed: tuple[Outcome, ...]  # what is told then
    first_type: Joined  # the index of the first workload type that holds, or -1
    first_tier: Joined  # the same of hardware tiers

    @property
    def order(self) -> tuple[int, str, str]:
        """Cluster before tenant, then by name; the same on every replica."""
        tenant = self.tenant
        return (0, "", self.name) if tenant is None else (1, tenant, self.name)

    @property
    def tenant(self) -> str | None:
        return self.model.spec.tenant.name if isinstance(self.model, TenantPolicy) else None

    @property
    def fails_closed(self) -> bool:
        return self.model.spec.failure_policy == "Fail"

    @property
    def strictest(self) -> tuple[Action, ...]:
        """What a failure of the whole policy does: the strictest action of its rules."""
        actions = {action for rule in self.validations for action in rule.actions}
        if not actions or "Deny" in actions:
            return ("Deny",)
        return ("Warn",) if "Warn" in actions else ("Audit",)

    def names_kind(self, group: str, kind: str) -> bool:
        kinds = self.model.spec.match_constraints.kinds
        return kind in kinds or f"{group}/{kind}" in kinds or "*" in kinds

    def takes(self, operation: str) -> bool:
        return operation in self.model.spec.match_constraints.operations
