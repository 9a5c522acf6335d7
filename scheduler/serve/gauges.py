"""Gauges of values that other parts hold, read on scrape."""

from collections.abc import Callable

from scheduler.queueing.entry import QueueState
from scheduler.report.metrics import Metrics
from scheduler.scheduler import Scheduler


def expose(
    metrics: Metrics,
    scheduler: Scheduler,
    *,
    cache_mismatches: Callable[[], int],
    leads: Callable[[], bool],
    events_dropped: Callable[[], int],
    policy_faults: Callable[[], int],
) -> None:
    """Register the gauges."""
    metrics.watch_each(
        "pending_pods",
        "Pods waiting for a node, by the state of their unit.",
        "state",
        [state.value for state in QueueState],
        lambda state: float(scheduler.queue.counts()[QueueState(state)]),
    )
    metrics.watch_each(
        "gangs",
        "Gangs with waiting members, by state.",
        "state",
        [state.value for state in QueueState],
        lambda state: float(scheduler.queue.gangs()[QueueState(state)]),
    )
    metrics.watch(
        "quarantined_units",
        "Units on which the scheduler itself failed, until they are tried again; any is a bug.",
        lambda: float(scheduler.queue.quarantined()),
    )
    metrics.watch(
        "unapplied_objects",
        "Watched objects whose newest state the scheduler failed to apply, and tries again.",
        lambda: float(len(scheduler.failed_events)),
    )
    metrics.watch(
        "partial_gangs",
        "Gangs with fewer bound members than they need, that were never complete.",
        lambda: float(len(scheduler.partial_gangs)),
    )
    metrics.watch(
        "held_nodes",
        "Nodes held for a starving gang.",
        lambda: float(len(scheduler.recovery.held_nodes)),
    )
    metrics.watch(
        "reserved_units",
        "Units and reservations holding reserved capacity that is not in use.",
        lambda: float(len(scheduler.cache.reserved)),
    )
    metrics.watch(
        "cache_mismatches",
        "Differences between the cache and the pods; anything but 0 is a bug.",
        lambda: float(cache_mismatches()),
    )
    metrics.watch("leader", "1 while this process is the leader.", lambda: float(leads()))
    metrics.watch("binding_plans", "Plans whose binds are in flight.", lambda: scheduler.binding)
    metrics.watch("nodes", "Nodes in the snapshot.", lambda: float(len(scheduler.cache.snapshot)))
    metrics.watch(
        "placed_pods", "Pods on nodes, assumed ones included.", lambda: float(len(scheduler.cache))
    )
    metrics.watch(
        "events_dropped",
        "Events dropped before they were written.",
        lambda: float(events_dropped()),
    )
    metrics.watch(
        "policy_faults",
        "Faults of the newest policies; while there are any, the last good policies are in force.",
        lambda: float(policy_faults()),
    )
