"""
The webhook under atheris, which searches for inputs that reach new code: `python -m
tests.fuzz.coverage_guided [libFuzzer options] [corpus folder]`.

atheris is no dependency of the project: install it for a run, and give `-max_total_time=SECONDS`.
What it finds is written as `crash-*`; `python -m tests.fuzz.webhook --replay FILE` shows it.
"""

import importlib
import sys
from collections.abc import Sequence
from random import Random
from types import ModuleType

from tests.fuzz import corpus, mutation
from tests.fuzz.target import Target

MISSING = "atheris is not installed: run `pip install atheris` in the environment of the fuzzing, or use `python -m tests.fuzz.webhook`, which needs nothing more"


def main(arguments: Sequence[str]) -> int:
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 2
    _fuzz(atheris, arguments)
    return 0


def _fuzz(atheris: ModuleType, arguments: Sequence[str]) -> None:
    seeds, target = corpus.seeds(), Target()

    def one(data: bytes) -> None:
        """The first byte says what the rest is: a body, or the choices that make one of a seed."""
        path = "/mutate" if data[:1] < b"\x80" else "/validate"
        if data[:1] and data[0] % 2:
            target.run(path, data[1:])
        else:
            target.run(path, mutation.mutant(Random(data[1:]), seeds))

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
