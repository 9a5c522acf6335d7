"""
Errors of the scheduler, by what the caller does next.

* SchedulerError
  x ModelError        an object cannot be read; report it, leave the object alone
  x InvariantError    a bug in this program; the step is undone, and its unit is quarantined
    + CorruptState    the state as a whole cannot be trusted; never caught, ends the process

Any other exception that leaves a step is a bug too, and treated as an InvariantError is: see
`isolation`. "Does not fit" is not an error but the value `model.plan.NoFit`. A request that the API
server rejects or does not answer is an error of `cluster.errors`.
"""

from enum import StrEnum


class SchedulerError(Exception):
    """Anything this package raises."""


class ModelError(SchedulerError):
    """An object cannot be read: its name, the value, and what is accepted."""


class InvariantError(SchedulerError):
    """The scheduler's own state is inconsistent."""


class CorruptState(InvariantError):
    """What a failed step left behind cannot be rebuilt: the cache as a whole may be wrong."""


class ErrorStep(StrEnum):
    """In which step an error came; the label `step` of `kubenexus_scheduler_errors_total`."""

    DECODE = "decode"
    WATCH = "watch"
    QUEUE = "queue"
    REQUEUE = "requeue"
    PLAN = "plan"
    BIND = "bind"
    REPORT = "report"
    BACKGROUND = "background"
    CONDITION = "condition"
    EVENT = "event"
    GATE = "gate"
    RECOVERY = "recovery"
    PREEMPTION = "preemption"
    BACKFILL = "backfill"
    QUOTA = "quota"
    FAIR_SHARE = "fair_share"
    RESERVATION = "reservation"
    PROVISIONING = "provisioning"
    POLICY = "policy"
    EXPLAIN = "explain"
    METRICS = "metrics"


def reraise(error: Exception) -> None:
    """The handler of a part whose errors are not isolated."""
    raise error
