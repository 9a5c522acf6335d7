"""
CEL on cel-expr-python (CEL-C++): the whole language, with types.

    source --check--> typed tree --rewrite--> program --evaluate(activation)--> plain value
             |                                            |
        CompileError                               EvaluationError

`CppEngine` runs on cel-expr-python (CEL-C++). It checks in one environment, where quantities,
addresses and the fields of a Pod have types, and evaluates in another, where objects are raw JSON
and those types are small maps. An error there is an ordinary value whose Python form is a text,
so truthy; nothing but `_checked` looks at such values, and it lets only real results through.

All threads share an engine and its programs; an `Activation` belongs to one request. Environments
are built once for each distinct `Environment` and cached (`functools.lru_cache`).

Not here: what functions mean (`policies.cel`), which rules exist, what an error does to a request.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

try:
    from cel_expr_python import cel  # type: ignore[import-untyped]  # it ships stubs, no py.typed
except ImportError:  # a platform without the wheel
    cel = None

from policies.cel import (
    compile_errors,
    cost,
    declarations,
    error_kinds,
    field_usage,
    library,
    metering,
    optional_guard,
    pod_types,
    rewrite,
)
from policies.cel.checked_expr import DecodeError
from policies.cel.cost import CostProfile, Meter
from policies.cel.field_usage import WHOLE, ReachableFields
from policies.cel.functions import overload as table
from policies.cel.protocol import (
    Activation,
    CompileError,
    CurrentActivation,
    Environment,
    EvaluationError,
    Program,
    ResultType,
)

AVAILABLE: Final = cel is not None
"""Whether this platform has the wheel; `CppEngine` cannot be made without it."""

MAX_PARTS: Final = 250_000
"""Parts of a value that leaves the engine; an object that the API server stores has fewer."""

_POD_VARIABLES: Final = ("object", "oldObject")
_TOO_DEEP: Final = "the expression is nested too deeply; use variables"
_NOT_METERED: Final = (
    "the expression is nested too deeply to be metered, and the object is so large that it must be;"
    " use variables"
)
_FREE: Final = CostProfile()
_UNBOUND: Final = re.compile(r'No value with name "([^"]+)" found in Activation')


def _type(name: str) -> cel.Type:
    return cel.Type(name)


def _implementations(functions: Iterable[table.Function]) -> cel.CelExtension:
    return cel.CelExtension(
        "kubernetes",
        [
            cel.FunctionDecl(
                function.name,
                [
                    cel.Overload(
                        f"{function.name}_{number}",
                        _type(overload.result),
                        [_type(parameter) for parameter in overload.parameters],
                        overload.member,
                        overload.call,
                    )
                    for number, overload in enumerate(function.overloads)
                ],
            )
            for function in functions
        ],
    )


class _MeteredExpression:
    """The expression with its calls metered, compiled at first use: few objects need it."""

    def __init__(self, env: cel.Env, expression: cel.Expression, meter: Meter) -> None:
        self._env, self._plain, self._meter = env, expression, meter
        self._compiled: cel.Expression | None = None

    def eval(self, native: cel.Activation, volume: int) -> cel.Value:
        """Raises EvaluationError beyond the budget, also where the value does not depend on it."""
        if self._compiled is None:
            # Two threads may both compile it; either result serves.
            data = metering.metered(self._plain.serialize(), in_python=library.NAMES)
            try:
                self._compiled = self._env.deserialize(data)
            except Exception as error:
                raise EvaluationError("budget", _NOT_METERED) from error
        self._meter.start(volume)
        try:
            return self._compiled.eval(native)
        finally:
            self._meter.stop()
            if self._meter.exceeded:
                raise EvaluationError("budget", cost.MESSAGE)


@dataclass(frozen=True, slots=True)
class _CppProgram:
    source: str
    references: frozenset[str]
    result_type: str
    _expression: cel.Expression
    _env: cel.Env
    _current: CurrentActivation | None
    """Where a function that reads the request finds its activation; None: no function does."""
    _checked: bool
    """Whether the checker has resolved its names; an unchecked tree may spell them otherwise."""
    _profile: CostProfile = _FREE
    _free_volume: int = 0
    """The characters of inputs up to which no meter is needed."""
    _metered: _MeteredExpression | None = None

    def reads(self) -> ReachableFields:
        return (
            field_usage.reads(self._expression.serialize(), self.references)
            if self._checked
            else WHOLE
        )

    def evaluate(self, activation: Activation) -> object:
        value = self._value(activation)
        try:
            # Only a CEL bool becomes a Python bool: errors are strings here, optionals raise.
            plain = value.value()
        except Exception as error:
            raise EvaluationError("type", optional_guard.ADVICE) from error
        if plain is True or plain is False:
            return plain
        return _checked(value, activation)[1]

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        return _checked(self._value(activation), activation)

    def _value(self, activation: Activation) -> cel.Value:
        native = activation.native.get("cpp")
        try:
            if native is None:
                native = activation.native["cpp"] = self._env.Activation(activation.handed())
            if self._current is not None:
                self._current.activation = activation
            return self._eval(native, activation)
        except EvaluationError:
            raise
        except Exception as error:
            raise error_kinds.evaluation_error(str(error)) from error
        finally:
            if self._current is not None:
                self._current.activation = None

    def _eval(self, native: cel.Activation, activation: Activation) -> cel.Value:
        if self._metered is not None and not activation.is_within(self._free_volume):
            volume = activation.volume(self.references, whole=self._profile.needs_whole_objects)
            if self._profile.bound(volume) > cost.BUDGET:
                return self._metered.eval(native, volume)
        return self._expression.eval(native)


def _checked(value: cel.Value, activation: Activation) -> tuple[str, object]:
    """The CEL type's name and the plain value; an error value leaves as an EvaluationError."""
    name = value.type().name()
    try:
        if name != "ERROR":
            return declarations.spelled(name).partition("<")[0], _plain(value)
        text = str(value.value())
    except EvaluationError:
        raise
    except Exception as error:
        raise EvaluationError("type", optional_guard.ADVICE) from error
    unbound = _UNBOUND.search(text)
    if unbound and unbound[1] in activation.failures:
        raise activation.failures[unbound[1]]
    raise error_kinds.evaluation_error(text)


def _plain(value: cel.Value, left: Iterator[int] | None = None) -> object:
    """
    A value in Python's own types, element by element, as long as numbers are `left`.

    The engine's own conversion of a whole map ends the process when there is an optional inside.
    """
    left = iter(range(MAX_PARTS)) if left is None else left
    if next(left, None) is None:
        raise EvaluationError("budget", f"the value has more than {MAX_PARTS:,} parts")
    plain = value.value()
    name = value.type().name()
    if name == "ERROR":
        raise error_kinds.evaluation_error(str(plain))
    if name == "TYPE":
        return declarations.spelled(str(plain)).partition("<")[0]
    if isinstance(plain, list):
        return [_plain(item, left) for item in plain]
    if isinstance(plain, dict):
        return {key: _plain(item, left) for key, item in plain.items()}
    return bytes(plain) if isinstance(plain, bytearray) else plain


class CppEngine:
    """
    cel-expr-python: the whole language, checked types.

    An evaluation takes at most 10,000 loop steps and `cost.BUDGET` units.
    """

    name: Final = "cel-expr-python"

    def __init__(self) -> None:
        self.version: Final = importlib.metadata.version("cel-expr-python")
        self._current = CurrentActivation()
        self._meter = Meter()
        self._pool = pod_types.pool(library.OPAQUE)
        self._checker = functools.lru_cache(maxsize=256)(self._new_checker)
        plain = [f for f in library.CHECKED if not declarations.needs_text(f)]
        self._declared = _implementations(plain)
        self._config = cel.NewEnvConfigFromYaml(declarations.configuration(library.CHECKED))
        self._runtime = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(declarations.configuration()),
            extensions=[_implementations(library.at_run_time(self._current.recall, self._meter))],
        )

    def compile(
        self, source: str, env: Environment, *, result_type: ResultType = "bool"
    ) -> Program:
        compile_errors.reject_long(source)
        if not env.checked:
            return self._unchecked(source, env)
        try:
            checked = self._checker(env).compile(source)
            result = declarations.spelled(checked.return_type().name())
            data = checked.serialize()
            refused = optional_guard.lost_optional(data, library.NAMES)
            names = {name for name, _ in env.variables}
            ready = rewrite.rewrite(data, variables=names, opaque=library.OPAQUE)
        except DecodeError as error:
            raise CompileError(_TOO_DEEP) from error
        except Exception as error:
            raise compile_errors.from_text(str(error), source) from error
        compile_errors.reject_at(source, refused or ready.fault)
        compile_errors.reject_result(result, result_type)
        try:
            expression = self._runtime.deserialize(ready.data)
        except Exception as error:
            raise CompileError(_TOO_DEEP) from error
        profile = metering.profile(ready.data, in_python=library.NAMES)
        metered = _MeteredExpression(self._runtime, expression, self._meter)
        return _CppProgram(
            source,
            ready.references,
            result,
            expression,
            self._runtime,
            self._current if ready.needs_activation else None,
            True,
            profile,
            profile.free_volume(),
            metered if profile.sites else None,
        )

    def _unchecked(self, source: str, env: Environment) -> Program:
        plain = cel.NewEnv(
            config=cel.NewEnvConfigFromYaml(declarations.configuration()),
            variables={name: _type(kind) for name, kind in env.variables},
            container=env.container or None,
        )
        try:
            expression = plain.compile(source, disable_check=True)
        except Exception as error:
            raise compile_errors.from_text(str(error), source) from error
        names = frozenset(name for name, _ in env.variables)
        return _CppProgram(source, names, "dyn", expression, plain, None, False)

    def check(self, source: str, env: Environment) -> str:
        try:
            return declarations.spelled(self._checker(env).compile(source).return_type().name())
        except Exception as error:
            raise compile_errors.from_text(str(error), source) from error

    def _new_checker(self, env: Environment) -> cel.Env:
        types = {name: _type(kind) for name, kind in env.variables}
        if env.schema == "Pod":
            types |= {name: _type(pod_types.POD) for name in _POD_VARIABLES if name in types}
        return cel.NewEnv(
            descriptor_pool=self._pool,
            config=self._config,
            variables=types,
            extensions=[self._declared],
            container=env.container or None,
        )
