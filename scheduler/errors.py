"""
What can go wrong inside the scheduler, by what the caller should do about it.

* SchedulerError
  x ModelError      an object cannot be read; report it, leave the object alone
  x InvariantError  a bug in this program; never caught

"Does not fit" is no error but a value of `outcome`; what the API server refuses or does not
answer is an error of `cluster`.
"""


class SchedulerError(Exception):
    """Anything this package raises."""


class ModelError(SchedulerError):
    """An object cannot be read: which one, what was found, what is accepted."""


class InvariantError(SchedulerError):
    """The scheduler's own books do not add up."""
