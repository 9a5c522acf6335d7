"""
From a policy document to a compiled policy, with every fault of its expressions.

    document --model--> fields --compile--> CompiledPolicy
                                   |
              CompileErrors, later variables, rules named twice: all reported as Faults

Compilation happens when policies are loaded, so that no request meets a fault. A `Compiler` caches
expressions, so that a thousand tenants with the same rules cost what one costs.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from policies import vocabulary
from policies.cel.protocol import (
    ADMISSION,
    CompileError,
    Engine,
    Environment,
    Program,
    ResultType,
)
from policies.documents.faults import Fault, Origin
from policies.documents.policy import Policy, TenantPolicy
from policies.documents.rules import Affinity, Default, Exemption, Expression, Selector, Validation
from policies.documents.yaml_reader import Step
from policies.engine import inline_variables
from policies.engine.compiled import (
    BUILT_IN,
    MANAGED,
    ClassifyRule,
    Compiled,
    CompiledDefault,
    CompiledException,
    CompiledPolicy,
    CompiledValidation,
    Joined,
    Reached,
    Setting,
)
from policies.engine.result import Outcome

_VARIABLE: Final = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_FACTS: Final = frozenset(name for name, _ in ADMISSION.variables)
_VALIDATING: Final = ("validations", "exceptions")  # parts of a spec that only a verdict needs
_MOST_JOINED: Final = 24  # engines limit how deep an expression may nest


class Compiler:
    """Turns documents into compiled policies; caches expressions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known: dict[tuple[str, Environment, ResultType], Program | CompileError] = {}

    def policy(self, model: Policy, origin: Origin) -> CompiledPolicy | list[Fault]:
        """The policy, or all faults of its expressions."""
        return _PolicyCompiler(self, model, origin).compile()

    def program(self, source: str, env: Environment, result_type: ResultType) -> Program:
        key = (source, env, result_type)
        known = self._known.get(key)
        if known is None:
            try:
                known = self.engine.compile(source, env, result_type=result_type)
            except CompileError as exc:
                known = exc
            self._known[key] = known
        if isinstance(known, CompileError):
            raise known
        return known


class _PolicyCompiler:
    """Compiles one document; collects faults instead of stopping at the first."""

    def __init__(self, compiler: Compiler, model: Policy, origin: Origin) -> None:
        self._compiler = compiler
        self._model = model
        self._origin = origin
        spec = model.spec
        pods_only = set(spec.match_constraints.kinds) <= {"Pod"}
        self._env = Environment.of(dict(ADMISSION.variables), schema="Pod" if pods_only else None)
        self._faults: list[Fault] = []
        self._variables: dict[str, Compiled] = {}
        self._inlined: dict[str, str] = {}  # variable -> its expression, inlined
        self._facts: set[str] = set()
        self._before_validation: list[Program] = []
        self._validating: list[Program] = []

    def compile(self) -> CompiledPolicy | list[Fault]:
        spec, name = self._model.spec, self._model.metadata.name
        self._unique()
        self._compile_variables()
        conditions = self._each(("spec", "matchConditions"), spec.match_conditions)
        defaults = tuple(self._default(i, rule) for i, rule in enumerate(spec.defaults))
        validations = tuple(self._validation(i, rule) for i, rule in enumerate(spec.validations))
        exceptions = tuple(self._exception(i, rule) for i, rule in enumerate(spec.exceptions))
        types = tuple(self._choices("workloadType", spec.classify.workload_type))
        tiers = tuple(self._choices("hardwareTier", spec.classify.hardware_tier))
        if self._faults:
            return sorted(self._faults)
        return CompiledPolicy(
            name=name,
            model=self._model,
            source=self._origin.source,
            selector=selector(self._model),
            conditions=conditions,
            variables=self._variables,
            workload_types=types,
            hardware_tiers=tiers,
            defaults=defaults,
            validations=tuple(rule for rule in validations if rule is not None),
            exceptions=tuple(rule for rule in exceptions if rule is not None),
            facts=frozenset(self._facts),
            reached_before_validation=Reached(self._before_validation),
            reached=Reached((*self._before_validation, *self._validating)),
            all_pass=self._all([rule.expression for rule in spec.validations]),
            all_passed=tuple(Outcome(name, rule.name, True) for rule in spec.validations),
            first_type=self._first([rule.when for rule in spec.classify.workload_type]),
            first_tier=self._first([rule.when for rule in spec.classify.hardware_tier]),
        )

    # --- several expressions as one ---

    def _all(self, sources: Sequence[str]) -> Joined:
        return self._joined(
            " && ".join(f"({source}\n)" for source in sources), len(sources), "bool"
        )

    def _first(self, sources: Sequence[str]) -> Joined:
        ladder = "".join(f"({source}\n) ? {i} : " for i, source in enumerate(sources))
        return self._joined(f"{ladder}-1", len(sources), "any")

    def _joined(self, source: str, count: int, result_type: ResultType) -> Joined:
        def make() -> Compiled | None:
            if not 1 < count <= _MOST_JOINED:
                return None
            whole = inline_variables.inlined(source, self._inlined)
            for text in (whole, source) if whole is not None else (source,):
                with contextlib.suppress(CompileError):
                    program = self._compiler.program(text, self._env, result_type)
                    return Compiled("", program, self._needs(program))
            return None

        return Joined(make)

    # --- expressions ---

    def _expression(
        self, path: Sequence[Step], source: str, field: str, result_type: ResultType = "bool"
    ) -> Compiled | None:
        try:
            program = self._compiler.program(source, self._env, result_type)
        except CompileError as exc:
            self._faults.append(self._explained(path, source, exc))
            return None
        self._facts |= program.references & _FACTS
        if MANAGED in source:
            self._facts.add(MANAGED)
        (self._validating if path[1] in _VALIDATING else self._before_validation).append(program)
        return Compiled(field, program, self._needs(program))

    def _explained(self, path: Sequence[Step], source: str, exc: CompileError) -> Fault:
        """A message about a variable that is defined later, better than the engine's own."""
        later = {rule.name for rule in self._model.spec.variables} - set(self._variables)
        for reference in _VARIABLE.finditer(source):
            name = reference[1]
            if name in later and path[1] == "variables":
                line = source.count("\n", 0, reference.start()) + 1
                column = reference.start() - source.rfind("\n", 0, reference.start())
                own = isinstance(path[2], int) and self._model.spec.variables[path[2]].name
                why = (
                    f"variables.{name} refers to itself; variables may read only those above"
                    if own == name
                    else f"variables.{name} is defined further down; move it above"
                )
                exc = CompileError(why, line=line, column=column)
                break
        return self._origin.compile_fault(path, source, exc)

    def _needs(self, program: Program) -> tuple[str, ...]:
        """The variables that it reads, in the order of the document."""
        return tuple(name for name in self._variables if f"variables.{name}" in program.references)

    def _compile_variables(self) -> None:
        for index, rule in enumerate(self._model.spec.variables):
            path = ("spec", "variables", index, "expression")
            made = self._expression(path, rule.expression, f"variables.{rule.name}", "any")
            if made is not None:
                self._variables[rule.name] = made
                self._inline(rule.name, rule.expression, made.program.result_type)
            kind = made.program.result_type if made is not None else "dyn"
            self._env = self._env.extended({f"variables.{rule.name}": kind})

    def _inline(self, name: str, source: str, result_type: str) -> None:
        whole = inline_variables.inlined(source, self._inlined)
        if whole is not None and inline_variables.may_be_inlined(whole, result_type):
            self._inlined[name] = whole

    def _each(self, path: tuple[Step, ...], rules: Sequence[Any]) -> tuple[Compiled, ...]:
        made = [
            self._expression((*path, i, "expression"), rule.expression, rule.name)
            for i, rule in enumerate(rules)
        ]
        return tuple(compiled for compiled in made if compiled is not None)

    def _choices(self, field: str, rules: Sequence[Any]) -> Iterator[ClassifyRule]:
        for index, rule in enumerate(rules):
            name = f"classify.{field}[{index}]"
            when = self._expression(("spec", "classify", field, index, "when"), rule.when, name)
            if when is not None:
                yield ClassifyRule(name, when, rule.value)

    def _validation(self, index: int, rule: Validation) -> CompiledValidation | None:
        path = ("spec", "validations", index)
        made = self._expression((*path, "expression"), rule.expression, rule.name)
        message_expression = None
        if rule.message_expression is not None:
            field = f"{rule.name}.messageExpression"
            message_expression = self._expression(
                (*path, "messageExpression"), rule.message_expression, field, "string"
            )
        if made is None:
            return None
        message = rule.message or f"failed expression: {_one_line(rule.expression)}"
        return CompiledValidation(
            rule.name, made, message, message_expression, rule.reason, rule.actions
        )

    def _exception(self, index: int, rule: Exemption) -> CompiledException | None:
        path = ("spec", "exceptions", index)
        known = {row.name for row in self._model.spec.validations} | BUILT_IN
        for place, name in enumerate(rule.validations):
            if name not in known:
                self._fault(
                    (*path, "validations", place),
                    f"found {name!r}, but this policy has no validation of that name; it has"
                    f" {', '.join(sorted(known))}",
                )
        when = self._expression((*path, "when"), rule.when, f"exceptions.{rule.name}")
        return None if when is None else CompiledException(rule, when)

    # --- defaults ---

    def _default(self, index: int, rule: Default) -> CompiledDefault:
        path = ("spec", "defaults", index)
        name = f"defaults[{index}]"
        when = None
        if rule.when is not None:
            when = self._expression((*path, "when"), rule.when, f"{name}.when")
        settings = tuple(self._settings((*path, "set"), name, rule))
        return CompiledDefault(name, when, rule.override, settings)

    def _settings(self, path: tuple[Step, ...], name: str, rule: Default) -> Iterator[Setting]:
        defaults = rule.set
        for target, alias, value in (
            (("spec", "schedulerName"), "schedulerName", defaults.scheduler_name),
            (("spec", "priorityClassName"), "priorityClassName", defaults.priority_class_name),
            (("spec", "runtimeClassName"), "runtimeClassName", defaults.runtime_class_name),
            (("spec", "affinity"), "affinity", defaults.affinity),
        ):
            if value is not None:
                result_type: ResultType = "any" if alias == "affinity" else "string"
                compiled = self._value((*path, alias), name, value, result_type)
                yield Setting("value", target, compiled)
        for prefix, alias, values in (
            (("metadata", "labels"), "labels", defaults.labels),
            (("metadata", "annotations"), "annotations", defaults.annotations),
            (("spec", "nodeSelector"), "nodeSelector", defaults.node_selector),
        ):
            for key, text in values.items():
                compiled = self._value((*path, alias, key), name, text, "string")
                yield Setting("value", (*prefix, key), compiled)
        for toleration in defaults.tolerations:
            item = toleration.model_dump(by_alias=True, exclude_none=True)
            yield Setting("item", ("spec", "tolerations"), item)
        for gate in defaults.scheduling_gates:
            yield Setting("item", ("spec", "schedulingGates"), {"name": gate})
        yield from self._resources(path, name, rule)

    def _resources(self, path: tuple[Step, ...], name: str, rule: Default) -> Iterator[Setting]:
        if rule.set.resources is None:
            return
        for section in ("requests", "limits"):
            for key, amount in getattr(rule.set.resources, section).items():
                place = (*path, "resources", section, key)
                yield Setting("resource", (section, key), self._value(place, name, amount, "any"))

    def _value(self, path: tuple[Step, ...], name: str, value: Any, result_type: ResultType) -> Any:
        if isinstance(value, Affinity):
            return value.model_dump(by_alias=True, exclude_none=True)
        if not isinstance(value, Expression):
            return value
        return self._expression((*path, "expression"), value.expression, name, result_type)

    # --- names ---

    def _unique(self) -> None:
        spec = self._model.spec
        for field, names in (
            ("matchConditions", [rule.name for rule in spec.match_conditions]),
            ("variables", [rule.name for rule in spec.variables]),
            ("validations", [rule.name for rule in spec.validations]),
            ("exceptions", [rule.name for rule in spec.exceptions]),
        ):
            for index, name in enumerate(names):
                if name in names[:index]:
                    message = f"{name!r} is the name of an earlier one; choose another"
                    self._fault(("spec", field, index, "name"), message)

    def _fault(self, path: Sequence[Step], message: str) -> None:
        self._faults.append(self._origin.fault(path, message))


def selector(model: Policy) -> Selector | None:
    """The namespaces of a policy; a tenant's are by default those that carry its name."""
    spec = model.spec
    if spec.namespace_selector is not None or not isinstance(model, TenantPolicy):
        return spec.namespace_selector
    own = {vocabulary.TENANT_LABEL: model.spec.tenant.name}
    return Selector.model_validate({"matchLabels": own})


def _one_line(text: str) -> str:
    return " ".join(text.split())
