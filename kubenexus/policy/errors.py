"""
What ends a command early, by what its user does next.

* PolicyCommandError
  x UsageError     an argument is at fault: correct the command (exit code 2)
  x FaultyInput    the files are at fault: correct them; every fault is told (exit code 2)
"""

from collections.abc import Iterable

from policies.documents.faults import Fault


class PolicyCommandError(Exception):
    """Base of what a command tells in one message."""


class UsageError(PolicyCommandError):
    """An argument is at fault."""


class FaultyInput(PolicyCommandError):
    """Files that the command rests on are at fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
