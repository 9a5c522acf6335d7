"""
Errors, by what the user should do:

* DevError               one message; the command ends with exit code 1
  x UsageError           an option names something that does not exist (exit code 2)
  x BinariesUnavailable  the programs are neither found nor built; the message says what to do
  x StartFailed          a program exited or was not ready in time; see its log
  x CallFailed           the API server rejected a call of the set-up
"""

from typing import ClassVar


class DevError(Exception):
    exit_code: ClassVar[int] = 1


class UsageError(DevError):
    exit_code: ClassVar[int] = 2


class BinariesUnavailable(DevError):
    pass


class StartFailed(DevError):
    pass


class CallFailed(DevError):
    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
