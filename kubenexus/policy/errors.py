"""
Errors of the commands, by what the user does next.

* PolicyCommandError
  x UsageError     an option is wrong: correct the command (exit code 2)
  x FaultyInput    files are wrong: correct them; every fault is listed (exit code 2)
"""

from collections.abc import Iterable

from policies.documents.faults import Fault


class PolicyCommandError(Exception):
    """Base of these errors."""


class UsageError(PolicyCommandError):
    """An option is wrong."""


class FaultyInput(PolicyCommandError):
    """Files that the command needs are wrong."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
