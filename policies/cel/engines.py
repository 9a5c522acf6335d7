"""The CEL engines by name, and which of them this platform uses."""

from typing import Final

from policies.cel import engine_cpp
from policies.cel.protocol import CelError, Engine

ENGINES: Final = ("cel-expr-python", "cel-python")
"""The engines by name, the preferred one first."""


def engine(name: str | None = None) -> Engine:
    """The engine of that name, or the first that this platform has."""
    cpp, python = ENGINES
    chosen = name or (cpp if engine_cpp.AVAILABLE else python)
    if chosen not in ENGINES:
        raise CelError(f"found the CEL engine {chosen!r}, want one of {', '.join(ENGINES)}")
    if chosen == python:
        # Slow to import, and hardly ever wanted.
        from policies.cel.engine_python import PythonEngine

        return PythonEngine()
    if not engine_cpp.AVAILABLE:
        raise CelError(f"{cpp} has no wheel for this platform; set the engine to {python}")
    return engine_cpp.CppEngine()
