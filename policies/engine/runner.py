"""
Runs the compiled expressions of one request against its values, each variable at most once.

    needs known? --no--> evaluate the variable --value--> bound
                                             \\--error--> failed: its readers fail alike

One `Runner` per request and thread. Variables belong to a policy: entering another one forgets
those of the same name. A condition is a CEL bool; any other value is an EvaluationError.

Engines convert an object once per activation, which costs more than most rules, and any new value
makes a new activation. So there are two: one of the facts as they came, for expressions that read
nothing else, and one that changes with every variable.
"""

from collections.abc import Sequence
from typing import Any

from policies.cel.field_usage import EVERYTHING, ReachableFields
from policies.cel.protocol import Activation, EvaluationError
from policies.engine.compiled import Compiled, CompiledPolicy, Joined
from policies.engine.deadline import UNLIMITED, CpuDeadline


class Runner:
    """The values of one request, and the policy whose rules are being run."""

    def __init__(
        self,
        values: dict[str, Any],
        *,
        view: ReachableFields = EVERYTHING,
        deadline: CpuDeadline = UNLIMITED,
    ) -> None:
        """`view` is what the expressions that will be run reach of the objects."""
        self._deadline = deadline
        self._facts = Activation(values, view=view)
        self._activation = Activation(
            dict(values),
            memo=self._facts.memo,
            view=view,
            trimmed=self._facts.trimmed,
            volumes=self._facts.volumes,
        )
        self._bound: set[str] = set()  # facts that have another value by now
        self._evaluated: set[str] = set()
        """Variables of the policy whose value, or lack of one, is known."""
        self._policy: CompiledPolicy | None = None

    def enter(self, policy: CompiledPolicy) -> None:
        if policy is self._policy:
            return
        self._policy = policy
        self._evaluated.clear()
        activation = self._activation
        for name in policy.variables:
            key = f"variables.{name}"
            activation.values.pop(key, None)
            activation.failures.pop(key, None)

    def bind(self, name: str, value: object) -> None:
        """Give a fact another value; variables that may have read the old one are forgotten."""
        activation = self._activation
        for key in [key for key in activation.values if key.startswith("variables.")]:
            del activation.values[key]
        activation.failures.clear()
        self._evaluated.clear()
        activation.bind(name, value)
        self._bound.add(name)

    def is_true(self, compiled: Compiled) -> bool:
        value = self.value(compiled)
        if value is True or value is False:
            return value
        raise EvaluationError(
            "type", f"the expression gave {_shown(value)}; a rule must give true or false"
        )

    def value(self, compiled: Compiled) -> object:
        self._deadline.check()
        if not self._evaluated.issuperset(compiled.needs):
            self._evaluate_variables(compiled.needs)
        program = compiled.program
        changed = compiled.needs or not self._bound.isdisjoint(program.references)
        return program.evaluate(self._activation if changed else self._facts)

    def joined_value(self, joined: Joined) -> object | None:
        """The value of several expressions joined to one; None: evaluate each."""
        compiled = joined.get()
        if compiled is None:
            return None
        try:
            return self.value(compiled)
        except EvaluationError:
            return None

    def _evaluate_variables(self, needs: Sequence[str]) -> None:
        activation = self._activation
        variables = self._policy.variables if self._policy is not None else {}
        for name in needs:
            if name in self._evaluated:
                continue
            key = f"variables.{name}"
            try:
                activation.bind(key, self.value(variables[name]))
            except EvaluationError as exc:
                activation.fail(key, EvaluationError(exc.kind, f"{key}: {exc.message}"))
            self._evaluated.add(name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
