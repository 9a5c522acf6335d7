"""
The interface of CEL engines: environments, programs, activations and errors.

* CelError
  x CompileError      the text is at fault; found when a policy is loaded, never at request time
  x EvaluationError   this rule has no value for this object; its failurePolicy decides

An `Environment` declares the variables of an expression, an `Engine` compiles text to a `Program`,
and a `Program` is evaluated with an `Activation`: the values of one admission request.

Not here: engines (`policies.cel.engines`), functions (`policies.cel.library`).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from policies.cel.field_usage import EVERYTHING, ReachableFields, trim
from policies.cel.volume import volume

ResultType = Literal["bool", "string", "int", "any"]
"""What the author may return: `bool` for rules, `string` for messages, `any` for variables."""

ErrorKind = Literal["missing-key", "no-overload", "divide", "budget", "type", "function", "other"]

MAX_CODE_POINTS: Final = 100_000
"""The longest expression; the limit of CEL's own implementations."""


class CelError(Exception):
    """Base of every error that an engine raises."""


class CompileError(CelError):
    """The text of an expression is at fault; `line` and `column` count from 1 inside it."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"

    def caret(self, expression: str) -> str:
        """The line at fault and, under it, a mark at the column."""
        lines = expression.split("\n")
        text = lines[self.line - 1] if 0 < self.line <= len(lines) else ""
        start = max(0, self.column - 61)
        shown = text[start : start + 120].replace("\t", " ")
        return f"{shown}\n{' ' * (self.column - 1 - start)}^"


class EvaluationError(CelError):
    """The expression has no value here; `kind` says why in a word that programs can compare."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Environment:
    """
    The variables that an expression may read.

    `variables` are (name, CEL type) pairs in name order; a name may be dotted (`variables.team`),
    and then it is that whole path which is declared. Types: `dyn`, `bool`, `int`, `uint`, `double`,
    `string`, `bytes`, `timestamp`, `duration`, `list<…>`, `map<…,…>`.
    """

    variables: tuple[tuple[str, str], ...] = ()
    container: str = ""
    schema: Literal["Pod"] | None = None
    """With `Pod`, `object` and `oldObject` are checked against the fields of a Kubernetes Pod."""
    checked: bool = True
    """False skips the checker; only CEL's own functions are known then. Not for policies."""

    @classmethod
    def of(
        cls,
        variables: Mapping[str, str] | Iterable[str],
        *,
        container: str = "",
        schema: Literal["Pod"] | None = None,
    ) -> Environment:
        """From a mapping of name to type, or from names alone (all `dyn`)."""
        pairs = variables if isinstance(variables, Mapping) else dict.fromkeys(variables, "dyn")
        return cls(tuple(sorted(pairs.items())), container, schema)

    def extended(self, variables: Mapping[str, str]) -> Environment:
        """The same environment with more variables, or other types for some."""
        more = tuple(sorted((dict(self.variables) | dict(variables)).items()))
        return dataclasses.replace(self, variables=more)


ADMISSION: Final = Environment.of(
    [
        "object",
        "oldObject",
        "request",
        "namespaceObject",
        "params",
        "tenant",
        "workload",
        "gang",
        "numa",
    ]
)
"""The variables of every policy, all `dyn`: each of them is null in some request."""


@dataclass(slots=True)
class Activation:
    """
    The values of one request, by variable name; converted for an engine once, on first use.

    Belongs to one request and so to one thread. A value bound later (a variable's, once known)
    is seen by the programs evaluated after it. The objects themselves are never changed.
    """

    values: dict[str, object]
    failures: dict[str, EvaluationError] = field(
        default_factory=dict
    )  # variable -> why it has none
    native: dict[str, Any] = field(default_factory=dict)  # engine -> its own form of `values`
    memo: dict[tuple[str, str], object] = field(default_factory=dict)  # (fact, variable) -> fact
    view: ReachableFields = EVERYTHING
    """What the programs of this activation reach of its objects."""
    trimmed: dict[str, object] = field(default_factory=dict)  # object -> what is reached of it

    volumes: dict[str, int] = field(default_factory=dict)  # variable -> its characters
    most: int = -1
    """At least the characters of all variables together; below zero: not known yet."""

    def handed(self) -> dict[str, object]:
        """The values for an engine to convert: objects without what no program reaches."""
        for name, parts in self.view.parts.items():
            if name not in self.trimmed and name in self.values:
                self.trimmed[name] = trim(self.values[name], parts)
        return {**self.values, **self.trimmed} if self.trimmed else self.values

    def is_within(self, characters: int) -> bool:
        """Whether all variables together have no more characters; False: perhaps not."""
        if self.most < 0:
            self.most = volume(list(self.handed().values()))
        return self.most <= characters

    def volume(self, names: Iterable[str], *, whole: bool) -> int:
        """The characters of what programs get of these variables; `whole`: of all objects too."""
        total = 0
        for name in names:
            if name not in self.volumes:
                self.volumes[name] = volume(self.handed().get(name))
            total += self.volumes[name]
        for name in self.view.parts if whole else ():
            key = f"whole {name}"
            if key not in self.volumes:
                self.volumes[key] = volume(self.values.get(name))
            total += self.volumes[key]
        return total

    def bind(self, name: str, value: object) -> None:
        """Give a variable its value."""
        self.values[name] = value
        self.volumes.pop(name, None)
        if self.most >= 0:
            self.most += volume(value)
        self.failures.pop(name, None)
        self.native.clear()

    def fail(self, name: str, error: EvaluationError) -> None:
        """Mark a variable as failed: a program that reads it fails with `error`."""
        self.values.pop(name, None)
        self.failures[name] = error
        self.native.clear()


class CurrentActivation(threading.local):
    """The activation under evaluation on this thread, for functions that read the request."""

    activation: Activation | None = None

    def recall(self) -> Activation:
        if self.activation is None:
            raise EvaluationError("other", "no evaluation is under way")
        return self.activation


class Program(Protocol):
    """A compiled expression. Immutable; may be evaluated by many threads at once."""

    @property
    def source(self) -> str: ...

    @property
    def references(self) -> frozenset[str]:
        """The declared variables that the expression reads."""

    @property
    def result_type(self) -> str:
        """The CEL type found by the checker, in the words of `Environment.variables`."""

    def evaluate(self, activation: Activation) -> object:
        """A plain value: what JSON has, and bytes, datetime, timedelta. Raises EvaluationError."""

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        """The same with its CEL type's name first, as `int` and `uint` are both Python's int."""


@runtime_checkable
class PartialActivation(Protocol):
    """A program that reports the fields it reaches; any other may reach everything."""

    def reads(self) -> ReachableFields:
        """Computed at each call."""


class Engine(Protocol):
    """Turns text into programs."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def compile(
        self, source: str, env: Environment, *, result_type: ResultType = "bool"
    ) -> Program:
        """A program that gives what is wanted. Raises CompileError, nothing else."""

    def check(self, source: str, env: Environment) -> str:
        """The type that the expression gives, `dyn` where unknown. Raises CompileError."""


def evaluate_bool(program: Program, activation: Activation) -> bool:
    """True or False for a CEL bool; anything else is an EvaluationError, never a truthy value."""
    value = program.evaluate(activation)
    if value is True or value is False:
        return value
    type_name, _ = program.evaluate_tagged(activation)
    raise EvaluationError(
        "type", f"the expression gave a value of type {type_name}; a rule must give true or false"
    )
