"""
Errors of the scheduler, by what the caller does next.

* SchedulerError
  x ModelError      an object cannot be read; report it, leave the object alone
  x InvariantError  a bug in this program; never caught

"Does not fit" is not an error but the value `model.plan.NoFit`. A request that the API server
rejects or does not answer is an error of `cluster.errors`.
"""


class SchedulerError(Exception):
    """Anything this package raises."""


class ModelError(SchedulerError):
    """An object cannot be read: its name, the value, and what is accepted."""


class InvariantError(SchedulerError):
    """The scheduler's own state is inconsistent."""
