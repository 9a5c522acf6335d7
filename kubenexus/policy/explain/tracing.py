"""
Trace expressions while they are evaluated: each value, and the values of its parts.

    Engine   --wrapped-->  PartsEngine     compiles the parts of an expression beside it
    PolicySet --traced---> PolicySet       each evaluation becomes a `TracedExpression`

The engine evaluates parts in the activation of the whole, so they have the same values. A part that
reads the variable of a loop has many values and is left out. Parts are evaluated even where the
whole did not need them; a part without a value has the reason. Parts cannot change the outcome.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from kubenexus.policy.explain import cel_syntax
from kubenexus.policy.explain.cel_syntax import Node
from policies.cel.protocol import (
    Activation,
    CompileError,
    Engine,
    Environment,
    EvaluationError,
    Program,
    ResultType,
)
from policies.engine.compiled import NOT_JOINED, ClassifyRule, Compiled, CompiledPolicy
from policies.engine.policyset import PolicySet

Section = Literal[
    "matchConditions", "variables", "classify", "defaults", "validations", "exceptions"
]

_MOST_PARTS: Final = 200  # of one expression; more are of no use to a reader


@dataclass(frozen=True, slots=True)
class TracedPart:
    """A part of an expression with its value, or why it has none; `depth` 1 is an operand."""

    text: str
    depth: int
    value: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TracedExpression:
    """One evaluation of one expression; `stage` counts the objects of a request, from 0."""

    policy: str
    section: Section
    rule: str
    expression: str
    value: Any = None
    error: str = ""
    parts: tuple[TracedPart, ...] = ()
    stage: int = 0


@dataclass(frozen=True, slots=True)
class _PartProgram:
    text: str
    depth: int
    program: Program


@dataclass(frozen=True, slots=True)
class _WithParts:
    """A program that knows its parts; evaluates like the plain one."""

    plain: Program
    parts: tuple[_PartProgram, ...]

    @property
    def source(self) -> str:
        return self.plain.source

    @property
    def references(self) -> frozenset[str]:
        return self.plain.references

    @property
    def result_type(self) -> str:
        return self.plain.result_type

    def evaluate(self, activation: Activation) -> object:
        return self.plain.evaluate(activation)

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        return self.plain.evaluate_tagged(activation)


class PartsEngine:
    """An engine whose programs carry the programs of their parts."""

    def __init__(self, plain: Engine) -> None:
        self._plain = plain

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def version(self) -> str:
        return self._plain.version

    def compile(
        self, source: str, env: Environment, *, result_type: ResultType = "bool"
    ) -> Program:
        program = self._plain.compile(source, env, result_type=result_type)
        parts_with_depth = list(parts_of(source).items())[:_MOST_PARTS]
        parts = [self._part(text, depth, env) for text, depth in parts_with_depth]
        return _WithParts(program, tuple(part for part in parts if part is not None))

    def check(self, source: str, env: Environment) -> str:
        return self._plain.check(source, env)

    def _part(self, text: str, depth: int, env: Environment) -> _PartProgram | None:
        try:
            return _PartProgram(text, depth, self._plain.compile(text, env, result_type="any"))
        except CompileError:
            return None  # an optional, or a name that only the whole gives a meaning


def parts_of(source: str) -> dict[str, int]:
    """The parts of an expression that tell a reader something, each once, to their depth."""
    tree = cel_syntax.parse(source)
    depths: dict[str, int] = {}
    for node, depth in _shown_parts(tree, 0) if tree is not None else ():
        depths.setdefault(_bare(source[node.start : node.end]), depth)
    return depths


def _bare(text: str) -> str:
    """Without the brackets around it."""
    while text.startswith("(") and cel_syntax.parse(text[1:-1]) is not None:
        text = text[1:-1].strip()
    return text


def _shown_parts(
    node: Node, depth: int, parent: Node | None = None, bound: frozenset[str] = frozenset()
) -> Iterator[tuple[Node, int]]:
    """Outer parts first, none that reads a variable of a loop, which are `bound`."""
    is_shown = _is_shown(node, parent) and not bound & {name.text for name in cel_syntax.free(node)}
    if depth and is_shown:
        yield node, depth
    below = depth + 1 if not depth or is_shown else depth
    for index, child in enumerate(node.children):
        if not _is_plumbing(node, index):
            inner = bound if node.on and index == 0 else bound | node.loop
            yield from _shown_parts(child, below, node, inner)


def _is_shown(node: Node, parent: Node | None) -> bool:
    """
    A literal is its own value, and a bare name is a whole object, too large to show.

    Of `a && b && c` the parts are a, b and c.
    """
    if node.kind in ("literal", "name", "list", "map", "message"):
        return False
    chained = parent is not None and node.text == parent.text and node.text in ("&&", "||")
    return not chained


def _is_plumbing(node: Node, index: int) -> bool:
    """The path to a field gets no line of its own, nor does the argument of `has`."""
    if node.kind in ("select", "index") and index == 0:
        return node.children[0].kind in ("select", "name", "index")
    return node.kind == "call" and not node.on and node.text == "has"


@dataclass(slots=True)
class Tracer:
    """
    The evaluations, in order.

    `objects` are the objects that expressions read: the one that was sent, the same with defaults
    written to it, the pods of its templates.
    """

    expressions: list[TracedExpression] = field(default_factory=list)
    objects: list[object] = field(default_factory=list)

    def over(self, policies: PolicySet) -> PolicySet:
        """The same policies, with every evaluation recorded here."""
        traced = PolicySet.of(self._policy(policy) for policy in policies.policies)
        return replace(traced, tables=policies.tables, digest=policies.digest)

    def _policy(self, policy: CompiledPolicy) -> CompiledPolicy:
        def traced(section: Section, compiled: Compiled) -> Compiled:
            program = _TracedProgram(policy.name, section, compiled.field, compiled.program, self)
            return replace(compiled, program=program)

        def choices(rules: tuple[ClassifyRule, ...]) -> tuple[ClassifyRule, ...]:
            return tuple(replace(rule, when=traced("classify", rule.when)) for rule in rules)

        return replace(
            policy,
            conditions=tuple(traced("matchConditions", rule) for rule in policy.conditions),
            variables={name: traced("variables", rule) for name, rule in policy.variables.items()},
            workload_types=choices(policy.workload_types),
            hardware_tiers=choices(policy.hardware_tiers),
            defaults=tuple(
                replace(
                    rule,
                    when=rule.when and traced("defaults", rule.when),
                    settings=tuple(
                        replace(setting, value=traced("defaults", setting.value))
                        if isinstance(setting.value, Compiled)
                        else setting
                        for setting in rule.settings
                    ),
                )
                for rule in policy.defaults
            ),
            validations=tuple(
                replace(
                    rule,
                    expression=traced("validations", rule.expression),
                    message_expression=rule.message_expression
                    and traced("validations", rule.message_expression),
                )
                for rule in policy.validations
            ),
            exceptions=tuple(
                replace(rule, when=traced("exceptions", rule.when)) for rule in policy.exceptions
            ),
            all_pass=NOT_JOINED,
            first_type=NOT_JOINED,
            first_tier=NOT_JOINED,
        )

    def stage(self, activation: Activation) -> int:
        """The number of the object that is being evaluated."""
        obj = activation.values.get("object")
        for number, known in enumerate(self.objects):
            if known is obj:
                return number
        self.objects.append(obj)
        return len(self.objects) - 1


@dataclass(frozen=True, slots=True)
class _TracedProgram:
    """A program that records each evaluation."""

    policy: str
    section: Section
    rule: str
    plain: Program
    tracer: Tracer

    @property
    def source(self) -> str:
        return self.plain.source

    @property
    def references(self) -> frozenset[str]:
        return self.plain.references

    @property
    def result_type(self) -> str:
        return self.plain.result_type

    def evaluate(self, activation: Activation) -> object:
        stage, parts = self.tracer.stage(activation), self._parts(activation)
        seen = TracedExpression(
            self.policy, self.section, self.rule, self.source, parts=parts, stage=stage
        )
        try:
            value = self.plain.evaluate(activation)
        except EvaluationError as exc:
            self.tracer.expressions.append(replace(seen, error=exc.message))
            raise
        self.tracer.expressions.append(replace(seen, value=value))
        return value

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        return self.plain.evaluate_tagged(activation)

    def _parts(self, activation: Activation) -> tuple[TracedPart, ...]:
        if not isinstance(self.plain, _WithParts):
            return ()
        traced: list[TracedPart] = []
        for part in self.plain.parts:
            try:
                value = part.program.evaluate(activation)
                traced.append(TracedPart(part.text, part.depth, value))
            except EvaluationError as exc:
                traced.append(TracedPart(part.text, part.depth, error=exc.message))
        return tuple(traced)
