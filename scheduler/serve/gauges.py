"""Figures that others keep, registered so that Prometheus reads them when it asks."""

from collections.abc import Callable

from scheduler.cycle import Scheduler
from scheduler.queueing.entry import QueueState
from scheduler.report.metrics import Metrics


def expose(
    metrics: Metrics,
    scheduler: Scheduler,
    *,
    drift: Callable[[], int],
    leads: Callable[[], bool],
    events_dropped: Callable[[], int],
    policy_faults: Callable[[], int],
) -> None:
    """Register everything that is read when asked for."""
    metrics.watch_each(
        "pending_pods",
        "Pods waiting for a node, by the state of their unit.",
        "state",
        [state.value for state in QueueState],
        lambda state: float(scheduler.queue.counts()[QueueState(state)]),
    )
    metrics.watch_each(
        "gangs",
        "Gangs with members that wait, by state.",
        "state",
        [state.value for state in QueueState],
        lambda state: float(scheduler.queue.gangs()[QueueState(state)]),
    )
    metrics.watch(
        "partial_gangs",
        "Gangs of which fewer members than needed have a node, and never had.",
        lambda: float(len(scheduler.partial_gangs)),
    )
    metrics.watch(
        "held_nodes",
        "Nodes held for a gang that waits too long.",
        lambda: float(len(scheduler.recovery.held)),
    )
    metrics.watch(
        "kept_units",
        "Units and reservations for which room is kept that nobody has taken yet.",
        lambda: float(len(scheduler.cache.reserved)),
    )
    metrics.watch(
        "ledger_drift",
        "Differences between the books and the pods; anything but 0 is a bug.",
        lambda: float(drift()),
    )
    metrics.watch("leading", "1 while this process may decide.", lambda: float(leads()))
    metrics.watch("binding_plans", "Plans whose binds are in flight.", lambda: scheduler.binding)
    metrics.watch("nodes", "Nodes in the picture.", lambda: float(len(scheduler.cache.snapshot)))
    metrics.watch("placed_pods", "Pods that hold a node.", lambda: float(len(scheduler.cache)))
    metrics.watch("events_dropped", "Events not written.", lambda: float(events_dropped()))
    metrics.watch(
        "policy_faults",
        "Faults of the newest policies; while there are some, the last good ones are in force.",
        lambda: float(policy_faults()),
    )
