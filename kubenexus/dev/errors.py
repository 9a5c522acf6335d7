"""
What can go wrong, by what the person should do about it:

* DevError               one message for a person; the command ends with exit code 1
  x UsageError           what was asked for does not exist; ask for something else (exit code 2)
  x BinariesUnavailable  the programs can be neither found nor built; the message says what to do
  x StartFailed          a program ended or was not ready in time; its log tells why
  x CallFailed           the API server said no to the control plane's own set-up
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
