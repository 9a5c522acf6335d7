"""
The answer to "why does this pod wait?", as JSON: what `/explain` sends and `kubenexus why` shows.

    {"pod": "ns/name", "node": "…"}                                     it has its node
    {"pod", "state", "waited", "attempts", "message",                   it waits
     "reasons": [{"reason", "nodes"}], "changes": ["…"],
     "nearest": {"node", "reasons", "short": [{"resource", "asked", "free"}]},
     "reserved": ["… for pod group ns/name"],
     "provisioning": ["ProvisioningRequest … is asked"],
     "start": {"expected": "2026-…Z" or null, "waits_for": ["ns/pod"], "ahead": ["ns/unit"]},
     "gang": {"name", "size", "exist", "bound", "members": [{"pod", "state", "node"}]}}

A gang is tried once more as far as it fits, and the first member that does not is explained: that
each member fits alone says nothing. Read-only: whatever is tried is taken back.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from policies import vocabulary
from policies.text import timestamp
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
    QueueState.ACTIVE: "about to be planned",
    QueueState.BACKOFF: "waiting out a pause after a failure",
    QueueState.UNSCHEDULABLE: "waiting for a change that may help",
    QueueState.PLANNING: "being planned",
    QueueState.GATED: "its pod group is complete, and its gate is being lifted",
    QueueState.BINDING: "other members of its pod group are being bound",
    QueueState.REFUSED: "its bind was refused by the API server, and is tried again later",
    QueueState.SUSPENDED: "its pod group is being taken apart",
    QueueState.OVER_QUOTA: "held back by its tenant's quota",
}


def answer(
    seen: Inspection,
    snapshot: Snapshot,
    memo: Memo,
    *,
    members: Iterable[tuple[Pod, str]] = (),
    promised: Sequence[StartReservation] = (),
    now: float,
) -> Json:
    """`members` are those of the pod's gang, each with its node or an empty string; `promised` are
    the start times that were promised to anybody."""
    found: Json = {"pod": str(seen.pod.key)}
    if seen.node:
        found["node"] = seen.node
    elif seen.look is None:
        found["state"] = _not_waiting(seen.pod)
    else:
        found |= _waiting(seen, seen.look, snapshot, memo, now)
        if promised:
            found["start"] = _start(seen.look, promised)
    if seen.pod.gang is not None:
        found["gang"] = _gang(seen, sorted(members, key=lambda row: row[0].key))
    return found


def _not_waiting(pod: Pod) -> str:
    if pod.gates:
        return f"held by scheduling gates: {', '.join(pod.gates)}"
    if pod.terminating:
        return "being deleted"
    if pod.pending and None in pod.resource_claims:
        return "its resource claims have not been made yet: its events say why"
    return "finished" if pod.finished else "its bind is in flight"


def _waiting(seen: Inspection, look: UnitView, snapshot: Snapshot, memo: Memo, now: float) -> Json:
    found: Json = {
        "state": STATES[look.state],
        "waited": round(max(0.0, now - look.since), 1),
        "attempts": look.attempts,
    }
    if look.state is QueueState.FORMING:
        return found
    if look.why is not None and look.why.over_quota:
        return found | {"message": look.why.text, "reasons": [], "changes": [], "nearest": None}
    why = _explain(seen, look, snapshot, memo)
    message = look.why.text if look.why is not None else why.text
    changes = [*why.changes]
    if look.why is not None and look.why.gang is not None:
        gang = look.why.gang
        changes.append(f"free room for {gang.want - gang.have} more of pod group {gang.name}")
    return found | {
        "message": message,
        "reasons": [{"reason": reason, "nodes": nodes} for reason, nodes in why.reasons],
        "changes": changes,
        "nearest": _nearest(why),
    }


def _start(look: UnitView, promised: Sequence[StartReservation]) -> Json:
    """When it is expected to start, and whom it must not make late."""
    mine = next((one for one in promised if one.key == look.unit.key), None)
    ahead = [one for one in promised if one is not mine and one.priority >= look.unit.priority]
    return {
        "expected": None if mine is None else timestamp(mine.start),
        "waits_for": [] if mine is None else list(mine.waits_for),
        "ahead": [str(one.key) for one in sorted(ahead, key=lambda one: (one.start, str(one.key)))],
    }


def shorter(start: float) -> str:
    """What lets a unit go ahead of a start that was promised to somebody else."""
    key = vocabulary.EXPECTED_DURATION_ANNOTATION
    return f"end before {timestamp(start)}, and say so with {key}"


def _explain(seen: Inspection, look: UnitView, snapshot: Snapshot, memo: Memo) -> Explanation:
    with snapshot.trial():
        tried = planner.fill(
            look.unit, snapshot, memo=memo, closed=seen.closed, bound_members=seen.bound_members
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
            {"resource": row.resource, "asked": row.asked, "free": row.free}
            for row in why.nearest.short
        ],
    }


def _gang(seen: Inspection, members: list[tuple[Pod, str]]) -> Json:
    unit = seen.look.unit if seen.look is not None else None
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
