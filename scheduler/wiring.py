"""
Construction of every part of a scheduler process, and the order in which they run.

    informers in sync ──▶ [leader] ──▶ `Scheduler.run` until the process ends or the lease is lost
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from cluster import resources
from cluster.client import Client
from cluster.events.recorder import Recorder
from cluster.informer import Informer, WatchEvent
from cluster.leader_election import LeaderElector
from cluster.optional_informer import OptionalInformer
from scheduler import fork
from scheduler.actuators import Actuators
from scheduler.background import BackgroundTasks
from scheduler.bind.binder import Binder
from scheduler.errors import ErrorStep
from scheduler.fork import ForkError, ForkPolicy
from scheduler.gang.gates import GateRemover
from scheduler.gang.stale_gang_eviction import StaleGangEvictor
from scheduler.hostinfo import inventory
from scheduler.isolation import brief
from scheduler.model import gang
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.options import CycleSettings, Options
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.dra.prebind import ClaimPreBind
from scheduler.plugins.volumes.plugin import VolumePlugin
from scheduler.plugins.volumes.prebind import VolumePreBind
from scheduler.provisioning import informers as provisioning_feeds
from scheduler.provisioning.writer import RequestWriter
from scheduler.report import events
from scheduler.report.conditions import ConditionWriter
from scheduler.report.metrics import Metrics
from scheduler.report.reporter import Reporter
from scheduler.scheduler import Scheduler
from scheduler.serve import process
from scheduler.serve.gauges import expose
from scheduler.tenancy.fairshare.persistence import UsagePersistence
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.reservation import objects as reservation_objects
from scheduler.tenancy.reservation.writer import ReservationWriter
from scheduler.watch import policies

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CONDITION_WRITERS: Final = 2
_GATE_WRITERS: Final = 8
_RECOUNT_EVERY: Final = 300.0  # seconds


class LeaseLost(Exception):
    """Another process may lead now; this one must end."""


class Wiring:
    """All parts of one scheduler process."""

    def __init__(self, options: Options, client: Client, recorder: Recorder) -> None:
        self._options = options
        self._client = client
        self._recorder = recorder
        self._cache_mismatches = 0
        self._leading = asyncio.Event()
        self._elector = self._leader_elector() if options.leader_elect else None
        self._conditions = ConditionWriter(
            client,
            busy=lambda: self.scheduler.binding > 0,
            clock=lambda: datetime.now(UTC),
            sleep=asyncio.sleep,
            failed=self._failed(ErrorStep.CONDITION),
        )
        self._reporter = Reporter(recorder.record, self._conditions)
        self._gates = GateRemover(
            client,
            may_write=self._leads,
            on_rejection=self._reporter.gate_not_removed,
            sleep=asyncio.sleep,
            failed=self._failed(ErrorStep.GATE),
        )
        self.metrics = Metrics()
        self.scheduler = Scheduler(
            name=options.scheduler_name,
            actuators=self._actuators(),
            metrics=self.metrics,
            now=time.monotonic,
            leading=self._leads,
            known=self._known,
            settings=CycleSettings(
                starving_after=options.starving_after, hold_seconds=options.hold_seconds
            ),
            fork=ForkPolicy(fork.run),
        )
        self._reader = self.scheduler.isolation.reader
        self._nodes: Informer[Node | None] = Informer(
            client, resources.NODES, keep=self._reader(Node.read), on_event=self.scheduler.on_node
        )
        self._pods: Informer[Pod | None] = Informer(
            client,
            resources.PODS,
            keep=self._reader(Pod.read, self._report_unreadable),
            on_event=self.scheduler.on_pod,
        )
        self._feeds = self._feed_informers()
        self._optional = self._optional_informers()
        self._policies = policies.follow(
            client,
            recorder.record,
            options.policies,
            objects=options.policy_objects,
            adopt=self.scheduler.adopt,
        )
        self._usage = UsagePersistence(
            client,
            self.scheduler.shares,
            self._policies.objects,
            may_write=self._leads,
            epoch=time.time,
            failed=partial(self.scheduler.isolation.report, ErrorStep.FAIR_SHARE, "usage"),
        )
        expose(
            self.metrics,
            self.scheduler,
            cache_mismatches=lambda: self._cache_mismatches,
            leads=self._leads,
            events_dropped=lambda: sum(recorder.dropped.values()),
            policy_faults=lambda: len(self._policies.faults),
        )

    # --- construction ---

    def _actuators(self) -> Actuators:
        return Actuators(
            binder=Binder(
                self._client,
                now=time.monotonic,
                sleep=asyncio.sleep,
                random=random.random,
                may_write=self._leads,
            ),
            gates=self._gates,
            gang_evictor=StaleGangEvictor(
                self._client,
                scheduler=self._options.scheduler_name,
                policy=self._options.stale_gang_policy,
                record=self._recorder.record,
                may_write=self._leads,
                clock=lambda: datetime.now(UTC),
                sleep=asyncio.sleep,
            ),
            reporter=self._reporter,
            evictor=Evictor(
                self._client,
                record=self._recorder.record,
                may_write=self._leads,
                sleep=asyncio.sleep,
            ),
            reservation_writer=ReservationWriter(
                self._client, now=time.monotonic, sleep=asyncio.sleep, may_write=self._leads
            ),
            volume_prebind=self._volume_prebind,
            claim_prebind=self._claim_prebind,
            request_writer=self._request_writer(),
        )

    def _failed(self, step: ErrorStep) -> Callable[[Pod, Exception], None]:
        return lambda pod, error: self.scheduler.isolation.report(step, pod.key, error)

    def _leads(self) -> bool:
        return self._elector is None or self._elector.is_leader

    def _known(self) -> Iterable[Pod]:
        return (pod for pod in self._pods.values() if pod is not None)

    def _leader_elector(self) -> LeaderElector:
        return LeaderElector(
            self._client,
            name=self._options.scheduler_name,
            namespace=self._options.lease_namespace,
            identity=process.identity(),
            on_started=self._leading.set,
        )

    def _volume_prebind(self, volumes: VolumePlugin) -> VolumePreBind:
        return VolumePreBind(
            self._client,
            volumes,
            now=time.monotonic,
            sleep=asyncio.sleep,
            random=random.random,
            gone=lambda pod: not self.scheduler.waits(pod.uid),
            may_write=self._leads,
        )

    def _claim_prebind(
        self, devices: DynamicResources, cluster_event: Callable[[], None], tasks: BackgroundTasks
    ) -> ClaimPreBind:
        return ClaimPreBind(
            self._client,
            devices,
            now=time.monotonic,
            sleep=asyncio.sleep,
            random=random.random,
            may_write=self._leads,
            cluster_event=cluster_event,
            tasks=tasks,
        )

    def _request_writer(self) -> RequestWriter | None:
        if not self._options.provisioning_class:
            return None
        return RequestWriter(
            self._client,
            class_name=self._options.provisioning_class,
            scheduler=self._options.scheduler_name,
            may_write=self._leads,
        )

    def _report_unreadable(self, obj: dict[str, Any], error: Exception) -> None:
        """An Event on a pod of this scheduler that waits."""
        metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
        if spec.get("schedulerName") == self._options.scheduler_name and not spec.get("nodeName"):
            self._recorder.record(
                events.unreadable_pod(
                    metadata["namespace"], metadata["name"], metadata["uid"], brief(error)
                )
            )

    def _feed_informers(self) -> tuple[Informer[Any], ...]:
        """What plugins read beside pods and nodes, and disruption budgets."""
        plugins = self.scheduler.cache.snapshot.plugins
        feeds = (
            *(feed for feed in plugins.feeds if not feed.optional),
            self.scheduler.budgets.feed(),
        )
        return tuple(
            Informer(
                self._client,
                feed.resource,
                keep=self._reader(feed.read),
                on_event=partial(self.scheduler.on_feed, feed),
            )
            for feed in feeds
        )

    def _optional_informers(self) -> tuple[OptionalInformer[Any], ...]:
        """Kinds that an API server may lack."""
        groups, tenancy = self.scheduler.groups, self.scheduler.tenancy
        cache = self.scheduler.cache
        plugin_feeds = (feed for feed in cache.snapshot.plugins.feeds if feed.optional)
        feeds = (*plugin_feeds, inventory.feed(cache.hosts))
        return (
            self._informer_if_served(
                resources.POD_GROUPS, gang.read_native_pod_group, groups.on_native
            ),
            self._informer_if_served(
                resources.X_POD_GROUPS, gang.read_x_k8s_pod_group, groups.on_x
            ),
            self._informer_if_served(
                resources.RESOURCE_RESERVATIONS,
                reservation_objects.read,
                tenancy.on_reservation,
                on_served=tenancy.reservations_served,
            ),
            *(
                self._informer_if_served(
                    feed.resource, feed.read, partial(self.scheduler.on_feed, feed)
                )
                for feed in feeds
            ),
            *provisioning_feeds.kinds(
                self._client,
                self.scheduler.provisioning,
                self.scheduler.isolation,
                self.scheduler.failed_events,
            ),
        )

    def _informer_if_served(
        self,
        resource: resources.Resource,
        read: Callable[[dict[str, Any]], T],
        on_event: Callable[[WatchEvent[T | None]], None],
        *,
        on_served: Callable[[bool], None] = lambda served: None,
    ) -> OptionalInformer[T | None]:
        def make(resource: resources.Resource) -> Informer[T | None]:
            return Informer(self._client, resource, keep=self._reader(read), on_event=guarded)

        guarded = self.scheduler.failed_events.guard(resource.kind, on_event)
        return OptionalInformer(
            self._client,
            resource,
            make=make,
            on_event=guarded,
            on_served=self._isolated(resource, on_served),
        )

    def _isolated(
        self, resource: resources.Resource, on_served: Callable[[bool], None]
    ) -> Callable[[bool], None]:
        def isolated(served: bool) -> None:
            with self.scheduler.isolation.step(ErrorStep.WATCH, resource):
                on_served(served)

        return isolated

    # --- running ---

    def _informers(self) -> tuple[Informer[Any], ...]:
        """All must be in sync before the first plan."""
        return (self._nodes, self._pods, *self._feeds)

    def missing(self) -> str:
        """What keeps the process from being ready, as a sentence; empty: nothing."""
        waiting = [
            str(resource)
            for resource, done in (
                *((informer.resource, informer.synced) for informer in self._informers()),
                *((informer.resource, informer.settled) for informer in self._optional),
            )
            if not done.is_set()
        ]
        if not self._policies.settled.is_set():
            waiting.append("policies")
        return f"waiting for the first list of {' and '.join(waiting)}" if waiting else ""

    def background(self) -> list[Coroutine[Any, Any, None]]:
        writers = [self._conditions.run() for _ in range(_CONDITION_WRITERS)]
        gate_writers = [self._gates.run() for _ in range(_GATE_WRITERS)]
        watches = [informer.run() for informer in self._informers()]
        watches += [informer.run() for informer in self._optional]
        watches += self._policies.background()
        return [*watches, *writers, *gate_writers, self._recount(), self._usage.run()]

    async def lead(self) -> None:
        """Plan once every list is in and, with leader election, this process leads."""
        for informer in self._informers():
            await informer.synced.wait()
        for kind in self._optional:
            await kind.settled.wait()
        await self._policies.settled.wait()
        process.collect_young_garbage()
        logger.info("informers in sync", extra={"nodes": len(self._nodes), "pods": len(self._pods)})
        if self._elector is None:
            self._recall()
            await self.scheduler.run()
            return
        async with process.tasks(self._elector.run()) as tasks:
            started = asyncio.create_task(self._leading.wait())
            await asyncio.wait([tasks[0], started], return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            if self._leading.is_set():
                partial = len(self.scheduler.partial_gangs)
                logger.info("became leader", extra={"partial_gangs": partial})
                self._recall()
                tasks.append(asyncio.create_task(self.scheduler.run(), name="plan"))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        raise LeaseLost("the lease was not renewed in time")

    def _recall(self) -> None:
        with self.scheduler.isolation.step(ErrorStep.FAIR_SHARE, "usage"):
            self._usage.recall()

    async def _recount(self) -> None:
        """Compare the cache with the watched pods from time to time, in a fork."""
        while True:
            await asyncio.sleep(_RECOUNT_EVERY)
            with self.scheduler.isolation.step(ErrorStep.WATCH, "cache"):
                await self._compare_cache()

    async def _compare_cache(self) -> None:
        try:
            mismatches = await fork.run(self.scheduler.cache_mismatches, seconds=_RECOUNT_EVERY)
        except ForkError as error:
            logger.warning("cache not compared with pods", extra={"why": str(error)})
            return
        self._cache_mismatches = len(mismatches)
        if mismatches:
            logger.error(
                "cache differs from pods",
                extra={"nodes": ",".join(mismatches.nodes[:10]), "leaked": mismatches.leaked},
            )
