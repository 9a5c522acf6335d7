"""
Facts about the cluster: namespaces from a watch, the controller of a pod where it matters.

    worker thread ──facts(review)──▶ watch store ──missing──▶ live read ──fails──▶ FactsUnavailable

The API client lives in a thread with its own event loop, one per worker process. A failed lookup
is never an empty result: the webhook denies the review, and the message names the missing fact.
Nodes are watched for the size of their NUMA nodes alone, which warnings mention.
`kueue_queues` watches the queues of Kueue; `queue_lookup` finds the one that counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from cluster import errors, resources
from cluster.client import Client
from cluster.connection.connection import Connection
from cluster.events.correlator import EventReport
from cluster.events.recorder import Recorder
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.loop_thread import BackgroundLoop
from cluster.policy_objects import PolicyObjectWatch
from policies import vocabulary
from policies.checks import numa, reservation
from policies.engine.kueue import Queue
from policies.engine.status import Loaded
from policies.pods import intent, workloads
from policies.pods.members import size_from
from webhook import metrics
from webhook.admission import decide, guards
from webhook.admission.decide import Facts
from webhook.admission.guards import TrustedUsers
from webhook.facts.errors import FactsUnavailable
from webhook.facts.kueue_queues import KueueQueues
from webhook.facts.queue_lookup import GENERATIONS, QueueLookup, controller_of, kind_of
from webhook.policy_source.status_writer import PolicyStatusWriter, written_part
from webhook.registration.rule_sync import RuleSync
from webhook.registration.rules import Kinds
from webhook.review.codec import Review

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]
T = TypeVar("T")

EVENTS_PER_SECOND: Final = 50.0  # more than people read; Events share etcd with all objects
EVENT_CAPACITY: Final = 2_000
COUNT_SECONDS: Final = 1.0
LOOKUP_SECONDS: Final = 1.5  # half of the timeout of the API server


class ClusterFacts:
    """Facts from one API server. `start` it after the fork that makes the worker."""

    def __init__(
        self,
        connection: Connection,
        *,
        instance: str = "webhook",
        schedulers: Collection[str] = (),
        put_policy_objects: Callable[[Sequence[Json]], None] | None = None,
        kinds: Callable[[], Kinds | None] | None = None,
        configuration: str = vocabulary.WEBHOOK_NAME,
    ) -> None:
        """
        `schedulers` are the user names of this product's scheduler.
        `put_policy_objects` takes the policy objects at each change; None: they are not watched.
        `kinds` are those that the policies in force name; None: the rules are not kept in step.
        `configuration` is the webhook configuration with the rules.
        """
        self._kinds = kinds
        self._configuration = configuration
        self._connection = connection
        self._instance = instance
        self._put_policy_objects = put_policy_objects
        self._schedulers = frozenset(schedulers)
        self._loop = BackgroundLoop("webhook-cluster")
        self._client: Client | None = None
        self._namespaces: Informer[Json] | None = None
        self._numa = numa.NumaSizes()
        self._queues: KueueQueues | None = None
        self._queue_lookup: QueueLookup | None = None
        self._policy_status: PolicyStatusWriter | None = None
        self._recorder: Recorder | None = None
        self._rule_sync: RuleSync | None = None

    def start(self) -> None:
        self._loop.start()
        self._loop.submit(self._watch()).add_done_callback(_stop_worker)

    def stop(self) -> None:
        self._loop.stop()

    async def _watch(self) -> None:
        async with Client(self._connection, component="webhook") as client:
            self._client = client
            self._namespaces = Informer(
                client, resources.NAMESPACES, keep=_name_and_labels, on_event=lambda event: None
            )
            self._queues = KueueQueues(client)
            self._queue_lookup = QueueLookup(
                self._queues, controller=self._controller, read_queue=self._read_queue
            )
            async with (
                Recorder(
                    client,
                    controller=vocabulary.WEBHOOK_NAME,
                    instance=self._instance,
                    capacity=EVENT_CAPACITY,
                    qps=EVENTS_PER_SECOND,
                    shared=True,
                ) as recorder,
                asyncio.TaskGroup() as tasks,
            ):
                self._recorder = recorder
                tasks.create_task(_count_events(recorder))
                tasks.create_task(self._namespaces.run())
                tasks.create_task(self._nodes(client).run())
                tasks.create_task(self._queues.run())
                if self._kinds is not None:
                    self._rule_sync = RuleSync(client, kinds=self._kinds, name=self._configuration)
                    tasks.create_task(self._rule_sync.run())
                if self._put_policy_objects is not None:
                    self._policy_status = PolicyStatusWriter(client, recorder)
                    policy_objects = PolicyObjectWatch(
                        client, on_change=self._put_policy_objects, relevant=written_part
                    )
                    tasks.create_task(policy_objects.run())

    def _nodes(self, client: Client) -> Informer[numa.Sizes]:
        """Readiness does not wait for nodes: without them a warning is missing, no denial."""

        def changed(event: WatchEvent[numa.Sizes]) -> None:
            after = frozenset() if event.kind is EventKind.DELETED else event.object
            self._numa.change(event.old or frozenset(), after)

        return Informer(client, resources.NODES, keep=numa.sizes_of, on_event=changed)

    def report_policies(self, objects: Sequence[Json], loaded: Loaded) -> None:
        """Start writing the status of the policies; safe from any thread, returns at once."""
        if self._policy_status is not None:
            self._loop.submit(self._policy_status.write(objects, loaded))
        if self._rule_sync is not None:
            self._loop.submit(_wake(self._rule_sync))

    def record(self, report: EventReport) -> None:
        """Queue an Event; safe from any thread, returns at once."""
        if self._recorder is not None:
            self._recorder.record(report)

    def unready_reason(self) -> str | None:
        if self._namespaces is None or not self._namespaces.synced.is_set():
            return "the namespaces have not been read yet"
        if self._queues is None or not self._queues.awaited.is_set():
            return "the queues have not been read yet"
        return None

    def needs_lookup(self, review: Review) -> bool:
        """Whether the API server must be review for the Kueue queue of the workload."""
        return self._queue_lookup is not None and self._queue_lookup.needs_lookup(review)

    def facts(self, review: Review) -> Facts:
        return Facts(
            namespace=self._namespace(review) if review.namespace else None,
            owner=self._workload(review),
            queue=self._queue(review),
            bound_pod=self._bound_pod(review) if guards.needs_pod(review) else None,
            numa_sizes=self._numa.largest,
            reservation_facts=self._reservation_facts(review)
            if decide.needs_reservation_facts(review)
            else None,
            trust=TrustedUsers(
                is_scheduler=review.user.get("username") in self._schedulers,
                manages_tenants=guards.needs_tenant_manager(review)
                and self._manages_tenants(review),
            ),
        )

    def _namespace(self, review: Review) -> Json:
        if review.resource == "namespaces":
            return review.object or review.old_object or {}
        name = review.namespace
        known = self._namespaces.get(name) if self._namespaces is not None else None
        return known if known is not None else self._read(resources.NAMESPACES, name, None)

    def _bound_pod(self, review: Review) -> Json | None:
        """None where the pod does not exist: then there is nothing to bind."""
        return self._find(resources.PODS, review.name, review.namespace)

    def _manages_tenants(self, review: Review) -> bool:
        """Whether the user may update TenantPolicies."""
        user = review.user
        access_review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "uid": user.get("uid"),
                "groups": user.get("groups"),
                "extra": user.get("extra"),
                "resourceAttributes": {
                    "verb": "update",
                    "group": vocabulary.POLICY_GROUP,
                    "resource": resources.TENANT_POLICIES.plural,
                },
            },
        }
        if self._client is None:
            raise FactsUnavailable("the rights of the user: the webhook is still starting")
        work = self._client.create(resources.SUBJECT_ACCESS_REVIEWS, access_review)
        answer = self._run(work, "the rights of the user")
        return (answer.get("status") or {}).get("allowed") is True

    def _reservation_facts(self, review: Review) -> reservation.ReservationFacts | None:
        """None where it cannot be read: then a warning is missing, and no denial changes."""
        if self._client is None:
            return None
        try:
            return self._run(
                self._read_reservation_facts(self._client, review), "nodes and reservations"
            )
        except FactsUnavailable as exc:
            logger.warning("reservation not compared with the cluster", extra={"error": str(exc)})
            return None

    async def _read_reservation_facts(
        self, client: Client, review: Review
    ) -> reservation.ReservationFacts:
        # The cache of the API server is new enough for a warning.
        nodes = await client.list(resources.NODES, resource_version="0", limit=0)
        kind = resources.RESOURCE_RESERVATIONS
        existing = await client.list(kind, resource_version="0", limit=0)
        namespaces = self._namespaces.values() if self._namespaces is not None else ()
        labels = (namespace["metadata"]["labels"] for namespace in namespaces)
        tenants = {name for row in labels if (name := row.get(vocabulary.TENANT_LABEL))}
        itself = f"{review.namespace}/{review.name}"
        return reservation.ReservationFacts.of(nodes.items, existing.items, tenants, itself)

    def _workload(self, review: Review) -> Json | None:
        if guards.needs_scaled(review):
            return self._scaled(review)
        return self._owner(review) if decide.needs_owner(review) else None

    def _scaled(self, review: Review) -> Json | None:
        """The workload whose `scale` is written, where its replicas are pods."""
        group, _, version = review.resource_api.rpartition("/")
        kind = workloads.scaled_kind(group, review.resource)
        if kind is None:
            return None
        resource = resources.Resource(group, version, review.resource, kind)
        return self._find(resource, review.name, review.namespace)

    def _owner(self, review: Review) -> Json | None:
        """The highest controller above the pod that states the size of the gang."""
        gang = intent.read(review.object or {}).gang
        owner: Json | None = None
        controller = self._controller(review.object or {}, review.namespace)
        for _ in range(GENERATIONS):
            if controller is None or gang is None:
                break
            if owner is None or size_from(controller, gang.name) is not None:
                owner = controller
            controller = self._controller(controller, review.namespace)
        return owner

    def _controller(self, obj: Json, namespace: str) -> Json | None:
        """The controller of the object, where its kind creates pods."""
        reference = controller_of(obj)
        if reference is None:
            return None
        group, version, kind = kind_of(reference)
        resource = resources.Resource(group, version, workloads.plural(kind), kind)
        controller = self._find(resource, str(reference.get("name")), namespace)
        # A forged or outdated reference names an object with another uid.
        uid = ((controller or {}).get("metadata") or {}).get("uid")
        return controller if uid == reference.get("uid") else None

    def _queue(self, review: Review) -> Queue | None:
        if self._queue_lookup is None:
            raise FactsUnavailable("the queues cannot be read: the webhook is still starting")
        return self._queue_lookup.queue(review)

    def _read_queue(self, namespace: str, name: str) -> Queue:
        if self._queues is None:
            raise FactsUnavailable(f"queue {name!r} cannot be read: the webhook is still starting")
        return self._run(self._queues.read(namespace, name), f"queue {name!r}")

    def _find(self, resource: resources.Resource, name: str, namespace: str) -> Json | None:
        """The object, or None where it does not exist."""
        try:
            return self._read(resource, name, namespace)
        except FactsUnavailable as exc:
            if isinstance(exc.__cause__, errors.Gone):
                return None
            raise

    def _read(self, resource: resources.Resource, name: str, namespace: str | None) -> Json:
        if self._client is None:
            raise FactsUnavailable(
                f"{resource} {name!r} cannot be read: the webhook is still starting"
            )
        work = self._client.get(resource, name, namespace=namespace)
        return self._run(work, f"{resource} {name!r}")

    def _run(self, work: Coroutine[Any, Any, T], subject: str) -> T:
        try:
            return self._loop.run(work, timeout=LOOKUP_SECONDS)
        except errors.ClusterError as exc:
            raise FactsUnavailable(f"{subject} cannot be read: {exc}") from exc
        except asyncio.CancelledError as exc:
            raise FactsUnavailable(f"{subject} cannot be read: the webhook is stopping") from exc


def _stop_worker(watch: Future[None]) -> None:
    """A worker without its watches would decide on old facts: the process ends."""
    if not watch.cancelled() and watch.exception() is not None:
        logger.critical("watches failed; stopping the worker", exc_info=watch.exception())
        os._exit(1)  # an exception in this thread would not end the process


async def _wake(rule_sync: RuleSync) -> None:
    rule_sync.wake()


async def _count_events(recorder: Recorder) -> None:
    counts = metrics.EventCounts()
    while True:
        counts.take(
            written=recorder.written, dropped=dict(recorder.dropped), waiting=recorder.waiting
        )
        await asyncio.sleep(COUNT_SECONDS)


def _name_and_labels(namespace: Json) -> Json:
    """The part of a namespace that the store keeps: name and labels."""
    metadata = namespace.get("metadata") or {}
    return {"metadata": {"name": metadata.get("name"), "labels": metadata.get("labels") or {}}}
