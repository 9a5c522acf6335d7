"""
One measurement: one case, one scheduler, once.

    drain     pods exist ─▶ watcher ready ─▶ scheduler starts ─▶ all bound ─▶ scheduler idle
    arrival   scheduler ready and idle ─▶ watcher ready ─▶ units come at their pace ─▶ idle
    restart   many bound pods and one that waits ─▶ watcher ready ─▶ scheduler starts ─▶ first bind

CPU is read when the scheduler has become idle, so that what it writes after the last bind counts as
well: when one Event per pod exists and next to no CPU is used, or no CPU for some seconds. A run that
binds no pod for a while is ended and reports the number of pending pods.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kubenexus.dev.plane.control_plane import APISERVER
from kubenexus.dev.process.child import Child
from tests.bench import scheduler_cases as cases
from tests.bench import scheduler_figures as figures
from tests.bench.scheduler_cases import Case, Peer
from tests.bench.scheduler_plane import (
    EVENTS,
    GROUPS,
    PODS,
    Plane,
    Watcher,
    await_healthy,
    running,
    scheduler,
)

Sample = dict[str, Any]

TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
DEADLINE, STALL = 600.0, 90.0
IDLE_WINDOW, IDLE_LONG, IDLE_MOST = 0.5, 8, 90.0
CREATORS: Final = 8


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads."""
    # The name may hold anything, so the fields are counted from behind its bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def peak_rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the API server and etcd had done by some instant."""

    requests: Counter[figures.Request]
    apiserver: float
    etcd: float

    @classmethod
    def take(cls, plane: Plane) -> "Reading":
        text = plane.metrics()
        return cls(
            figures.requests(text),
            cpu_seconds(plane.process(APISERVER)),
            cpu_seconds(plane.process("etcd")),
        )


def measure(plane: Plane, case: Case, peer: Peer, folder: Path) -> Sample:
    """Bring the case to the scheduler, and leave the API server without pods."""
    try:
        return (
            _arrival(plane, case, peer, folder) if case.rate else _drain(plane, case, peer, folder)
        )
    finally:
        plane.clear()


def _drain(plane: Plane, case: Case, peer: Peer, folder: Path) -> Sample:
    _create_all(plane, case, peer)
    watcher = Watcher(plane, folder / "watcher.log")
    child, _ = scheduler(plane, peer, folder / f"{peer.name}.log")
    with running(watcher.child):
        watcher.await_ready()
        load = os.getloadavg()[0]
        before = Reading.take(plane)
        start = time.monotonic()
        with running(child):
            watcher.wait_for(case.pods, deadline=DEADLINE, stall=STALL, alive=lambda: child.alive)
            sample = _after(plane, case, watcher, child, before)
    speed = figures.speed(watcher.bound, start)
    return {
        **sample,
        "load_before": load,
        "seconds": speed.seconds,
        "first_bind_seconds": speed.first,
        "pods_per_second": speed.per_second,
        "pods_per_second_after_first": speed.after_first,
    }


def _arrival(plane: Plane, case: Case, peer: Peer, folder: Path) -> Sample:
    watcher = Watcher(plane, folder / "watcher.log")
    child, health = scheduler(plane, peer, folder / f"{peer.name}.log")
    with running(watcher.child), running(child):
        watcher.await_ready()
        await_healthy(child, health)
        await_idle(child, has_events=lambda: True)
        load, began = os.getloadavg()[0], cpu_seconds(_pid(child))
        before = Reading.take(plane)
        late = _create_paced(plane, case, peer)
        watcher.wait_for(case.pods, deadline=DEADLINE, stall=STALL, alive=lambda: child.alive)
        sample = _after(plane, case, watcher, child, before)
    waits = figures.latencies(case, watcher.created, watcher.bound)
    return {
        **sample,
        "scheduler_cpu": sample["scheduler_cpu"] - began,
        "load_before": load,
        "latest_creation_seconds": late,
        "p50_ms": 1e3 * figures.percentile(waits, 0.5),
        "p99_ms": 1e3 * figures.percentile(waits, 0.99),
        "max_ms": 1e3 * max(waits, default=0.0),
    }


def restart(plane: Plane, peer: Peer, folder: Path, *, bound: int) -> Sample:
    """From start to the first bind on a cluster that holds `bound` pods; they stay."""
    plane.add(PODS, [cases.pod("waiting-000", peer)])
    watcher = Watcher(plane, folder / "watcher.log")
    child, _ = scheduler(plane, peer, folder / f"{peer.name}.log")
    try:
        with running(watcher.child):
            watcher.await_ready()
            start = time.monotonic()
            with running(child):
                watcher.wait_for(1, deadline=DEADLINE, stall=120.0, alive=lambda: child.alive)
                cpu = cpu_seconds(_pid(child)) if child.alive else 0.0
                rss = peak_rss_mb(_pid(child)) if child.alive else 0.0
        first = figures.speed(watcher.bound, start).first
    finally:
        plane.api().call("DELETE", f"{PODS}/waiting-000?gracePeriodSeconds=0")
    return {
        "pods": bound,
        "bound": len(watcher.bound),
        "seconds_to_first_bind": first,
        "cpu_to_first_bind": cpu,
        "rss_mb": rss,
    }


def _after(plane: Plane, case: Case, watcher: Watcher, child: Child, before: Reading) -> Sample:
    """What both modes report."""
    if not child.alive:
        raise SystemExit(f"{child.name} ended during a measurement:\n{child.tail()}")
    await_idle(child, has_events=lambda: plane.count(EVENTS) >= len(watcher.bound))
    cpu, rss = cpu_seconds(_pid(child)), peak_rss_mb(_pid(child))
    after = Reading.take(plane)
    watcher.read()
    requests = figures.of_scheduler(before.requests, after.requests)
    bound = len(watcher.bound)
    return {
        "pods": case.pods,
        "bound": bound,
        "scheduler_cpu": cpu,
        "apiserver_cpu": after.apiserver - before.apiserver,
        "etcd_cpu": after.etcd - before.etcd,
        "rss_mb": rss,
        "requests_per_pod": requests.total() / bound if bound else 0.0,
        "requests": {f"{verb} {resource}": n for (verb, resource), n in requests.most_common(8)},
        "events": plane.count(EVENTS),
        "watch_cuts": watcher.cuts,
        **(asdict(figures.spread(case, watcher.bound)) if case.gangs else {}),
    }


def await_idle(child: Child, *, has_events: Callable[[], bool]) -> None:
    """Until the process has reported everything and uses next to no CPU.

    A process that gets no CPU seems idle too: without all Events it must seem so for longer.
    """
    end, used, quiet = time.monotonic() + IDLE_MOST, cpu_seconds(_pid(child)), 0
    while time.monotonic() < end and child.alive:
        time.sleep(IDLE_WINDOW)
        now = cpu_seconds(_pid(child))
        quiet = quiet + 1 if now - used <= 2 * TICK else 0
        if quiet >= IDLE_LONG or (quiet and has_events()):
            return
        used = now


def _pid(child: Child) -> int:
    assert child.pid is not None
    return child.pid


# --- creating ---


def _create_all(plane: Plane, case: Case, peer: Peer) -> None:
    numbers = range(len(case.units))
    groups = [group for n in numbers if (group := cases.group(case, peer, n)) is not None]
    plane.add(GROUPS, groups)
    plane.add(PODS, [pod for n in numbers for pod in cases.members(case, peer, n)])


def _create_paced(plane: Plane, case: Case, peer: Peer) -> float:
    """Create units at their pace; returns the longest delay of a creation, in seconds."""
    api = plane.api()

    def create(unit: int, due: float) -> float:
        late = time.monotonic() - due
        group = cases.group(case, peer, unit)
        if group is not None:
            api.call("POST", GROUPS, group)
        for pod in cases.members(case, peer, unit):
            api.call("POST", PODS, pod)
        return late

    start = time.monotonic() + 0.2
    with ThreadPoolExecutor(CREATORS) as pool:
        made: list[Future[float]] = []
        for unit in range(len(case.units)):
            due = start + unit / case.rate
            _sleep_until(due)
            made.append(pool.submit(create, unit, due))
        return max((future.result() for future in made), default=0.0)


def _sleep_until(due: float, *, clock: Callable[[], float] = time.monotonic) -> None:
    left = due - clock()
    if left > 0:
        time.sleep(left)
