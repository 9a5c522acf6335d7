"""
The command line, from the functions behind it: their docstrings, and the options they declare.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from kubenexus import cli
from kubenexus.reference import markdown


def page() -> str:
    parts = [text for words, call in _commands() for text in _command(words, call)]
    return markdown.page(
        "Command line",
        "`kubenexus COMMAND --help` prints the same. Exit codes: 0 done, 1 the command failed"
        " or found problems, 2 the options or the input are wrong; the message says which.",
        *parts,
    )


def _commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, call in _registered(cli.app):
        below = list(_registered(_part(name))) if _hands_on(name, call) else []
        if not below:
            yield f"kubenexus {name}", call
        for inner, inner_call in below:
            alone = len(below) == 1 and _part(name).registered_callback is None
            yield f"kubenexus {name}" if alone else f"kubenexus {name} {inner}", inner_call


def _hands_on(name: str, call: Callable[..., Any]) -> bool:
    """Whether the command's words go to an application of their own, in the package so called."""
    kinds = [
        parameter.annotation
        for parameter in inspect.signature(call, eval_str=True).parameters.values()
    ]
    has_package = importlib.util.find_spec(f"kubenexus.{name}") is not None
    return (
        kinds == [typer.Context]
        and has_package
        and importlib.util.find_spec(f"kubenexus.{name}.cli") is not None
    )


def _part(name: str) -> typer.Typer:
    app = importlib.import_module(f"kubenexus.{name}.cli").app
    if not isinstance(app, typer.Typer):
        raise TypeError(f"kubenexus.{name}.cli.app is no application")
    return app


def _registered(app: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in app.registered_commands:
        if command.callback is not None and not command.hidden:
            yield command.name or command.callback.__name__.replace("_", "-"), command.callback


def _command(words: str, call: Callable[..., Any]) -> Iterator[str]:
    yield f"## {words}"
    yield inspect.cleandoc(call.__doc__ or "")
    rows = list(_options(call))
    if rows:
        yield markdown.table(("Option", "Default", "Meaning"), rows)


def _options(call: Callable[..., Any]) -> Iterator[tuple[str, str, str]]:
    for name, parameter in inspect.signature(call, eval_str=True).parameters.items():
        if get_origin(parameter.annotation) is not Annotated:
            if parameter.annotation is not typer.Context:
                raise TypeError(f"{call.__module__}.{call.__name__}: {name} has no description")
            continue
        kind, info, *_ = get_args(parameter.annotation)
        meaning = str(info.help or "")
        if isinstance(info, OptionInfo) and info.envvar:
            meaning += f" Environment: `{info.envvar}`."
        yield markdown.code(_spelled(name, kind, info)), _default(parameter.default), meaning


def _spelled(name: str, kind: object, info: object) -> str:
    plain = name.replace("_", "-")
    if isinstance(info, ArgumentInfo):
        return plain.upper()
    given = list(info.param_decls or ()) if isinstance(info, OptionInfo) else []
    first = getattr(info, "default", None)
    if isinstance(first, str):
        given.insert(0, first)  # where Annotated is used, typer takes the first spelling for it
    if given:
        return ", ".join(given)
    return f"--{plain} / --no-{plain}" if kind is bool else f"--{plain}"


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    return markdown.code(str(value.value if isinstance(value, Enum) else value))
