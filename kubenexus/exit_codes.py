"""End a failed command with one line on standard error and an exit code."""

from typing import Final

import typer

FAILED: Final = 1
BAD_INPUT: Final = 2


def end(message: str, code: int) -> typer.Exit:
    """The caller raises what is returned."""
    typer.echo(f"kubenexus: {message}", err=True)
    return typer.Exit(code)
