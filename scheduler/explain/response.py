"""
Explains why a pod waits, as JSON: the response of `/explain`, which `kubenexus why` renders.

    {"pod": "ns/name", "node": "…"}                                     it has a node
    {"pod", "state", "waited", "attempts", "message",                   it waits
     "reasons": [{"reason", "nodes"}], "changes": ["…"],
     "nearest": {"node", "reasons", "short": [{"resource", "requested", "free"}]},
     "reserved": ["… for pod group ns/name"],
     "provisioning": ["ProvisioningRequest … is pending"],
     "start": {"expected": "2026-…Z" or null, "waits_for": ["ns/pod"], "ahead": ["ns/unit"]},
     "gang": {"name", "size", "exist", "bound", "members": [{"pod", "state", "node"}]}}

The members of a gang are placed again on a trial, and the first that does not fit is explained:
each member alone may fit. Read-only: the trial is undone.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from policies import duration, vocabulary
from policies.text import counted, timestamp
from scheduler.cache.snapshot import Snapshot
from scheduler.explain.diagnosis import Explanation, explain
from scheduler.explain.inspection import Inspection
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.queueing.entry import QueueState, UnitView

Json = dict[str, Any]

STATES: Final = {
    QueueState.FORMING: "its pod group is forming",
    QueueState.ACTIVE: "in the active queue",
    QueueState.BACKOFF: "backing off after a failure",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.PLANNING: "being planned",
    QueueState.GATED: "its pod group is complete, and its scheduling gate is being removed",
    QueueState.BINDING: "other members of its pod group are being bound",
    QueueState.REFUSED: "its binding was rejected by the API server, and is retried later",
    QueueState.SUSPENDED: "members of its partial pod group are being evicted",
    QueueState.OVER_QUOTA: "over quota",
    QueueState.QUARANTINED: "quarantined after an error of the scheduler",
}


def answer(
    seen: Inspection,
    snapshot: Snapshot,
    memo: Memo,
    *,
    members: Iterable[tuple[Pod, str]] = (),
    start_reservations: Sequence[StartReservation] = (),
    now: float,
) -> Json:
    """`members` of the pod's gang, each with its node or an empty string; `start_reservations` of
    all units."""
    response: Json = {"pod": str(seen.pod.key)}
    if seen.node:
        response["node"] = seen.node
    elif seen.queued is None:
        response["state"] = _not_waiting(seen.pod)
    else:
        response |= _waiting(seen, seen.queued, snapshot, memo, now)
        if start_reservations:
            response["start"] = _start(seen.queued, start_reservations)
    if seen.pod.gang is not None:
        response["gang"] = _gang(seen, sorted(members, key=lambda row: row[0].key))
    return response


def _not_waiting(pod: Pod) -> str:
    if pod.gates:
        return f"behind scheduling gates: {', '.join(pod.gates)}"
    if pod.terminating:
        return "being deleted"
    if pod.pending and None in pod.resource_claims:
        return "waiting for its ResourceClaims to be created; its Events tell why"
    return "finished" if pod.finished else "its bind is in flight"


def _waiting(
    seen: Inspection, queued: UnitView, snapshot: Snapshot, memo: Memo, now: float
) -> Json:
    waiting: Json = {
        "state": STATES[queued.state],
        "waited": round(max(0.0, now - queued.since), 1),
        "attempts": queued.attempts,
    }
    if queued.state is QueueState.FORMING:
        return waiting
    if queued.state is QueueState.QUARANTINED:
        # The same error might come again, so nothing is tried for an explanation.
        retry = f"tried again in {duration.show(max(0.0, round(queued.retry_at - now)))}"
        message = f"{queued.error}; {retry}, or when the pod changes; other pods are not affected"
        return waiting | {"message": message, "reasons": [], "changes": [], "nearest": None}
    if queued.why is not None and queued.why.over_quota:
        return waiting | {"message": queued.why.text, "reasons": [], "changes": [], "nearest": None}
    why = _explain(seen, queued, snapshot, memo)
    message = queued.why.text if queued.why is not None else why.text
    changes = [*why.changes]
    if queued.why is not None and queued.why.gang is not None:
        gang = queued.why.gang
        missing = counted(gang.want - gang.have, "more pod")
        changes.append(f"free capacity for {missing} of pod group {gang.name}")
    return waiting | {
        "message": message,
        "reasons": [{"reason": reason, "nodes": nodes} for reason, nodes in why.reasons],
        "changes": changes,
        "nearest": _nearest(why),
    }


def _start(queued: UnitView, reservations: Sequence[StartReservation]) -> Json:
    """When it is expected to start, and which units it must not delay."""
    unit = queued.unit
    own = next((each for each in reservations if each.key == unit.key), None)
    ahead = [each for each in reservations if each is not own and each.priority >= unit.priority]
    return {
        "expected": None if own is None else timestamp(own.start),
        "waits_for": [] if own is None else list(own.waits_for),
        "ahead": [
            str(each.key) for each in sorted(ahead, key=lambda each: (each.start, str(each.key)))
        ],
    }


def shorter(start: float) -> str:
    """What lets a unit be backfilled before the reserved start of another unit."""
    key = vocabulary.EXPECTED_DURATION_ANNOTATION
    return f"end before {timestamp(start)}, and declare it with {key}"


def _explain(seen: Inspection, queued: UnitView, snapshot: Snapshot, memo: Memo) -> Explanation:
    with snapshot.trial():
        tried = planner.fill(
            queued.unit, snapshot, memo=memo, closed=seen.closed, bound_members=seen.bound_members
        )
        closed = planner.rows_of(snapshot, seen.closed)
        return explain(tried.pod or seen.pod, snapshot, memo, closed=closed, outside=tried.outside)


def _nearest(why: Explanation) -> Json | None:
    if why.nearest is None or not why.reasons:
        return None
    return {
        "node": why.nearest.node,
        "reasons": list(why.nearest.reasons),
        "short": [
            {"resource": row.resource, "requested": row.asked, "free": row.free}
            for row in why.nearest.short
        ],
    }


def _gang(seen: Inspection, members: list[tuple[Pod, str]]) -> Json:
    unit = seen.queued.unit if seen.queued is not None else None
    assert seen.pod.gang is not None
    return {
        "name": seen.pod.gang.key.name,
        "size": unit.size if unit else seen.pod.gang.min_available or 1,
        "exist": len(members),
        "bound": seen.bound,
        "members": [
            {"pod": pod.key.name, "state": _member_state(pod), "node": node}
            for pod, node in members
        ],
    }


def _member_state(pod: Pod) -> str:
    if pod.terminating:
        return "being deleted"
    return (
        "waiting" if pod.pending else f"gated by {', '.join(pod.gates)}" if pod.gates else "bound"
    )
