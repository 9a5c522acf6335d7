"""
Leader election on a `coordination.k8s.io` Lease: at most one leader, replaced within seconds.

    waiting --no holder, or the holder stopped renewing--> leading --cannot renew in time--> lost
       ^                                                     |
       +------------------ released at stop -----------------+

The holder's clock is never believed: a lease is stale when *this* process has seen no change in it
for the lease's duration. Writes carry the resourceVersion that was read, so that of two candidates
one gets `Conflict`. `is_leader` reads the clock at each call: a process that was frozen past its
renew deadline knows before any write that it leads no more.

`decide` is the whole rule, as a pure function; `LeaderElector` reads, writes and waits.
Losing the lease ends `run`: the caller stops the process, because half its work may be in flight.
"""

import asyncio
import logging
import random as randomness
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from cluster import verbs
from cluster.errors import Conflict, Gone, KubeError
from cluster.net.transport import Now, Sleep
from cluster.resources import LEASES, Obj

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Observed:
    """The lease's record as last seen to change, and when that was on the local clock."""

    record: tuple[Any, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """No process leads: take the lease. `transitions` counts the changes of leader so far."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """This process holds the lease: renew it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another process leads; the lease may become stale in `seconds`."""

    holder: str
    seconds: float


Decision = Acquire | Renew | Wait


def observe(previous: Observed | None, lease: Obj | None, now: float) -> Observed | None:
    """The same observation while the record stays the same; a new one when it changed."""
    if lease is None:
        return None
    spec = lease.get("spec") or {}
    names = ("holderIdentity", "acquireTime", "renewTime", "leaseTransitions")
    record = tuple(spec.get(name) for name in names)
    if previous is not None and previous.record == record:
        return previous
    return Observed(record, now)


def decide(lease: Obj | None, identity: str, now: float, observed: Observed | None) -> Decision:
    """The next step. `observed` is the outcome of `observe` for this lease."""
    if lease is None:
        return Acquire(0)
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return Renew()
    transitions = spec.get("leaseTransitions") or 0
    # A lease that was not observed yet counts as fresh.
    seen_at = now if observed is None else observed.at
    stale_at = seen_at + float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
    if not holder or now >= stale_at:
        return Acquire(transitions + 1)
    return Wait(holder, stale_at - now)


class LeaseClient(verbs.Gets, verbs.Creates, verbs.Updates, Protocol):
    """The verbs that a Lease is held with."""


class LeaderElector:
    """One candidate. `run()` returns when leadership is lost; cancel it to step down."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        on_started: Callable[[], None] = lambda: None,
        on_lost: Callable[[str], None] = lambda why: None,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._on_started = on_started
        self._on_lost = on_lost
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._lease: Obj | None = None
        self._observed: Observed | None = None
        self._leading_until: float | None = None
        self.holder = ""  # identity of the leader, as last read

    @property
    def is_leader(self) -> bool:
        return self._leading_until is not None and self._now() < self._leading_until

    async def run(self) -> None:
        """Wait for the lease, hold it, and return once it is lost."""
        try:
            await self._acquire()
            self._on_started()
            why = await self._hold()
        finally:
            await self._release()
        logger.error("leadership lost", extra={"lease": self._name, "error": why})
        self._on_lost(why)

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._attempt(timeout=self._renew_seconds):
                    return
            except KubeError as error:
                logger.warning(
                    "lease not acquired", extra={"lease": self._name, "error": str(error)}
                )
                self._lease = None
            # Jitter keeps candidates that started together from colliding at every attempt.
            await self._sleep(self._retry_seconds * (1.0 + 0.2 * self._random()))

    async def _hold(self) -> str:
        """Renew until that fails for too long; returns the reason."""
        why = "the lease was not renewed in time"
        while True:
            await self._sleep(self._retry_seconds)
            left = (self._leading_until or 0.0) - self._now()
            if left <= 0:
                return why
            try:
                if not await self._attempt(timeout=left, fast=True):
                    return f"{self.holder!r} holds the lease"
            except KubeError as error:
                why, self._lease = str(error), None

    async def _attempt(self, *, timeout: float, fast: bool = False) -> bool:
        """One round of read, decide, write; whether this process holds the lease afterwards.

        `fast` skips the read: this process wrote the lease in memory.
        """
        began = self._now()
        if not (fast and self._lease is not None):
            self._lease = await self._read(timeout)
        self._observed = observe(self._observed, self._lease, self._now())
        decision = decide(self._lease, self._identity, self._now(), self._observed)
        if isinstance(decision, Wait):
            self.holder = decision.holder
            self._leading_until = None
            return False
        try:
            self._lease = await self._write(decision, timeout)
        except Conflict:
            # Another candidate was first, or an earlier write of this one succeeded after all.
            self._lease = None
            if fast:
                return await self._attempt(timeout=timeout)
            raise
        self._observed = observe(self._observed, self._lease, self._now())
        self.holder = self._identity
        # Counted from before the request: other candidates count from when they read it.
        self._leading_until = began + self._renew_seconds
        return True

    async def _read(self, timeout: float) -> Obj | None:
        try:
            return await self._client.get(
                LEASES, self._name, namespace=self._namespace, timeout=timeout
            )
        except Gone:
            return None

    async def _write(self, decision: Acquire | Renew, timeout: float) -> Obj:
        now = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = self._lease or {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        spec = dict(lease.get("spec") or {})
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._lease_seconds)),
            "renewTime": now,
        }
        if isinstance(decision, Acquire):
            spec |= {"acquireTime": now, "leaseTransitions": decision.transitions}
        body = {**lease, "spec": spec}
        if self._lease is None:
            return await self._client.create(LEASES, body, timeout=timeout)
        return await self._client.update(LEASES, body, timeout=timeout)

    async def _release(self) -> None:
        """Clear the holder, so that the next candidate need not wait for the lease to expire."""
        held, self._leading_until = self._leading_until is not None, None
        if not held:
            return
        try:
            lease = await self._read(self._retry_seconds)
            spec = (lease or {}).get("spec") or {}
            if lease is None or spec.get("holderIdentity") != self._identity:
                return
            lease["spec"] = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._client.update(LEASES, lease, timeout=self._retry_seconds)
        except KubeError as error:
            logger.warning("lease not released", extra={"lease": self._name, "error": str(error)})
