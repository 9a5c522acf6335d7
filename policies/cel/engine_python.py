"""
CEL on cel-python: for platforms without the wheel of CEL-C++, and a second opinion in tests.

`policies.cel.engines` alone imports this module: the import is slow.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, base_functions

from policies.cel import compile_errors, error_kinds, library, python_checks
from policies.cel.protocol import (
    Activation,
    CompileError,
    CurrentActivation,
    Environment,
    EvaluationError,
    Program,
    ResultType,
)


@dataclass(frozen=True, slots=True)
class _PythonProgram:
    source: str
    references: frozenset[str]
    result_type: str
    _runner: celpy.Runner
    _current: CurrentActivation

    def evaluate(self, activation: Activation) -> object:
        return self.evaluate_tagged(activation)[1]

    def evaluate_tagged(self, activation: Activation) -> tuple[str, object]:
        for name in self.references & activation.failures.keys():
            raise activation.failures[name]
        try:
            native = activation.native.get("python")
            if native is None:
                native = {name: _VALUES.to_cel(value) for name, value in activation.values.items()}
                activation.native["python"] = native
            self._current.activation = activation
            return _VALUES.from_cel(self._runner.evaluate(native))
        except RecursionError as error:
            raise EvaluationError("budget", "the expression or the object is too deep") from error
        except Exception as error:
            raise error_kinds.evaluation_error(
                str(error.args[0] if error.args else error)
            ) from error
        finally:
            self._current.activation = None


class PythonEngine:
    """
    cel-python: for platforms without the wheel, and a second opinion in tests.

    Nothing is typed before it runs, and there is no budget of steps. What it does not have
    (optionals, two-variable macros, namespaced functions) is refused when a policy is loaded.
    """

    name: Final = "cel-python"

    def __init__(self) -> None:
        self.version: Final = importlib.metadata.version("cel-python")
        self._current = CurrentActivation()
        own = python_checks.callables(library.portable(self._current.recall))
        self._functions = {name: _over_cel(name, call) for name, call in own.items()}

    def compile(
        self, source: str, env: Environment, *, result_type: ResultType = "bool"
    ) -> Program:
        del result_type  # known only when the program runs
        compile_errors.reject_long(source)
        declared = [name for name, _ in env.variables]
        survey = python_checks.Survey(declared, {*self._functions, *base_functions})
        try:
            made = celpy.Environment(package=env.container or None)
            tree = made.compile(source)
            references = survey.references(tree) if env.checked else frozenset(declared)
            runner = made.program(tree, functions=self._functions)
        except CompileError:
            raise
        except CELParseError as error:
            raise CompileError(
                "syntax error", line=error.line or 1, column=error.column or 1
            ) from error
        except RecursionError as error:
            raise CompileError("the expression is nested too deeply") from error
        except Exception as error:
            raise CompileError(f"not an expression: {error}") from error
        return _PythonProgram(source, references, "dyn", runner, self._current)

    def check(self, source: str, env: Environment) -> str:
        self.compile(source, env, result_type="any")
        return "dyn"


_VALUES: Final = python_checks.Values(celtypes, CELEvalError)


def _over_cel(name: str, call: Callable[..., object]) -> Callable[..., Any]:
    """Our function over cel-python's values; errors become values, as the language says."""
    built_in = base_functions.get(name)

    def over(*arguments: Any) -> Any:
        try:
            return _VALUES.to_cel(call(*(_VALUES.from_cel(argument)[1] for argument in arguments)))
        except EvaluationError as error:
            return CELEvalError(error_kinds.tagged(error.kind, error.message))
        except RuntimeError as error:
            # `string` is a function of both; ours knows the types that only we have.
            return CELEvalError(str(error)) if built_in is None else built_in(*arguments)

    return over
