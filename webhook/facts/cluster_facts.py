"""
What the webhook knows of the cluster: namespaces from a watch, a pod's controller when it matters.

    worker thread --facts(review)--> store of the watch --missing--> live read --fails--> NotKnown

The API client lives in a thread with an event loop of its own, one a worker process. A lookup
that fails is never "nothing there": the review is refused and the message says what is missing.
Nodes are watched for the size of their NUMA nodes alone, which warnings name.
Queues of Kueue are followed by `kueue`; `standing` says which one counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from cluster import errors, resources
from cluster.client import Client
from cluster.connection.connection import Connection
from cluster.events.correlator import EventReport
from cluster.events.recorder import Recorder
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.loop_thread import BackgroundLoop
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
from webhook.facts.kueue_queues import KueueQueues
from webhook.facts.queue_lookup import GENERATIONS, QueueLookup, controller_of, kind_of
from webhook.policy_source.objects import PolicyObjects
from webhook.policy_source.reloader import Objects
from webhook.registration.rule_sync import RuleSync
from webhook.registration.rules import Kinds
from webhook.review.codec import Review
from webhook.serve.app import FactsUnavailable

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]
T = TypeVar("T")

EVENTS_A_SECOND: Final = 50.0  # more than people read; Events share etcd with everything else
EVENTS_WAITING: Final = 2_000
COUNT_SECONDS: Final = 1.0
LOOKUP_SECONDS: Final = 1.5  # half of what the API server waits for an answer


class ClusterFacts:
    """Facts from one API server. `start` it after the fork that makes the worker."""

    def __init__(
        self,
        connection: Connection,
        *,
        instance: str = "webhook",
        schedulers: Collection[str] = (),
        offer: Callable[[Objects], None] | None = None,
        kinds: Callable[[], Kinds | None] | None = None,
        configuration: str = vocabulary.WEBHOOK_NAME,
    ) -> None:
        """
        `schedulers` are the users that this product's scheduler may be.
        `offer` takes the policy objects whenever they change; None: they are not followed.
        `kinds` are what the policies in force name; None: the registered rules are not followed.
        `configuration` is where they are registered.
        """
        self._kinds, self._configuration = kinds, configuration
        self._connection, self._instance, self._offer = connection, instance, offer
        self._schedulers = frozenset(schedulers)
        self._loop = BackgroundLoop("webhook-cluster")
        self._client: Client | None = None
        self._namespaces: Informer[Json] | None = None
        self._numa = numa.NumaSizes()
        self._queues: KueueQueues | None = None
        self._standing: QueueLookup | None = None
        self._policies: PolicyObjects | None = None
        self._recorder: Recorder | None = None
        self._registrar: RuleSync | None = None

    def start(self) -> None:
        self._loop.start()
        self._loop.submit(self._watch()).add_done_callback(_ended)

    def stop(self) -> None:
        self._loop.stop()

    async def _watch(self) -> None:
        async with Client(self._connection, component="webhook") as client:
            self._client = client
            self._namespaces = Informer(
                client, resources.NAMESPACES, keep=_kept, on_event=lambda event: None
            )
            self._queues = KueueQueues(client)
            self._standing = QueueLookup(
                self._queues, controller=self._controller, look=self._look_for_queue
            )
            async with (
                Recorder(
                    client,
                    controller=vocabulary.WEBHOOK_NAME,
                    instance=self._instance,
                    capacity=EVENTS_WAITING,
                    qps=EVENTS_A_SECOND,
                    shared=True,
                ) as recorder,
                asyncio.TaskGroup() as tasks,
            ):
                self._recorder = recorder
                tasks.create_task(_counted(recorder))
                tasks.create_task(self._namespaces.run())
                tasks.create_task(self._nodes(client).run())
                tasks.create_task(self._queues.run())
                if self._kinds is not None:
                    self._registrar = RuleSync(client, kinds=self._kinds, name=self._configuration)
                    tasks.create_task(self._registrar.run())
                if self._offer is not None:
                    self._policies = PolicyObjects(client, recorder, offer=self._offer)
                    tasks.create_task(self._policies.run())

    def _nodes(self, client: Client) -> Informer[numa.Sizes]:
        """Nobody waits for nodes: without them a warning is missing, and no verdict changes."""

        def changed(event: WatchEvent[numa.Sizes]) -> None:
            after = frozenset() if event.kind is EventKind.DELETED else event.object
            self._numa.change(event.old or frozenset(), after)

        return Informer(client, resources.NODES, keep=numa.sizes_of, on_event=changed)

    def tell(self, objects: Objects, loaded: Loaded) -> None:
        """Report what became of the policies; from any thread, and never waited for."""
        if self._policies is not None:
            self._loop.submit(self._policies.tell(objects, loaded))
        if self._registrar is not None:
            self._loop.submit(_woken(self._registrar))

    def record(self, report: EventReport) -> None:
        """Queue an Event; from any thread, and never waited for."""
        if self._recorder is not None:
            self._recorder.record(report)

    def not_ready(self) -> str | None:
        if self._namespaces is None or not self._namespaces.synced.is_set():
            return "the namespaces have not been read yet"
        if self._queues is None or not self._queues.awaited.is_set():
            return "the queues have not been read yet"
        return None

    def waits(self, asked: Review) -> bool:
        """Whether the API server must be asked for the queue that the work stands in."""
        return self._standing is not None and self._standing.waits(asked)

    def facts(self, asked: Review) -> Facts:
        return Facts(
            namespace=self._namespace(asked) if asked.namespace else None,
            owner=self._workload(asked),
            queue=self._queue(asked),
            bound_pod=self._bound_pod(asked) if guards.needs_pod(asked) else None,
            numa_sizes=self._numa.largest,
            ground=self._ground(asked) if decide.needs_ground(asked) else None,
            trust=TrustedUsers(
                is_scheduler=asked.user.get("username") in self._schedulers,
                manages_tenants=guards.needs_tenant_manager(asked) and self._manages_tenants(asked),
            ),
        )

    def _namespace(self, asked: Review) -> Json:
        if asked.resource == "namespaces":
            return asked.object or asked.old_object or {}
        name = asked.namespace
        known = self._namespaces.get(name) if self._namespaces is not None else None
        return known if known is not None else self._read(resources.NAMESPACES, name, None)

    def _bound_pod(self, asked: Review) -> Json | None:
        """None where there is no such pod: then there is nothing to bind either."""
        return self._find(resources.PODS, asked.name, asked.namespace)

    def _manages_tenants(self, asked: Review) -> bool:
        """Whether the API server lets the user update tenant policies."""
        user = asked.user
        review = {
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
        work = self._client.create(resources.SUBJECT_ACCESS_REVIEWS, review)
        answer = self._wait(work, "the rights of the user")
        return (answer.get("status") or {}).get("allowed") is True

    def _ground(self, asked: Review) -> reservation.ReservationFacts | None:
        """Nobody waits for it: without it a warning is missing, and no verdict changes."""
        if self._client is None:
            return None
        try:
            return self._wait(self._grounds(self._client, asked), "nodes and reservations")
        except FactsUnavailable as exc:
            logger.warning("a reservation is not compared", extra={"error": str(exc)})
            return None

    async def _grounds(self, client: Client, asked: Review) -> reservation.ReservationFacts:
        # The API server's own memory is new enough for a warning.
        nodes = await client.list(resources.NODES, resource_version="0", limit=0)
        reserved = resources.RESOURCE_RESERVATIONS
        kept = await client.list(reserved, resource_version="0", limit=0)
        spaces = self._namespaces.values() if self._namespaces is not None else ()
        labels = (space["metadata"]["labels"] for space in spaces)
        tenants = {found for one in labels if (found := one.get(vocabulary.TENANT_LABEL))}
        but = f"{asked.namespace}/{asked.name}"
        return reservation.ReservationFacts.of(nodes.items, kept.items, tenants, but)

    def _workload(self, asked: Review) -> Json | None:
        if guards.needs_scaled(asked):
            return self._scaled(asked)
        return self._owner(asked) if decide.needs_owner(asked) else None

    def _scaled(self, asked: Review) -> Json | None:
        """The workload whose `scale` is written, where that counts pods."""
        group, _, version = asked.resource_api.rpartition("/")
        kind = workloads.scaled_kind(group, asked.resource)
        if kind is None:
            return None
        resource = resources.Resource(group, version, asked.resource, kind)
        return self._find(resource, asked.name, asked.namespace)

    def _owner(self, asked: Review) -> Json | None:
        """The highest controller above the pod that says how large the pod's gang is."""
        gang = intent.read(asked.object or {}).gang
        found, known = self._controller(asked.object or {}, asked.namespace), None
        for _ in range(GENERATIONS):
            if found is None or gang is None:
                break
            if known is None or size_from(found, gang.name) is not None:
                known = found
            found = self._controller(found, asked.namespace)
        return known

    def _controller(self, obj: Json, namespace: str) -> Json | None:
        """The object's controller, where that is of a kind that makes pods."""
        reference = controller_of(obj)
        if reference is None:
            return None
        group, version, kind = kind_of(reference)
        resource = resources.Resource(group, version, workloads.plural(kind), kind)
        found = self._find(resource, str(reference.get("name")), namespace)
        # A forged or outdated reference names an object of another identity.
        same = ((found or {}).get("metadata") or {}).get("uid") == reference.get("uid")
        return found if same else None

    def _queue(self, asked: Review) -> Queue | None:
        if self._standing is None:
            raise FactsUnavailable("the queues cannot be read: the webhook is still starting")
        return self._standing.queue(asked)

    def _look_for_queue(self, namespace: str, name: str) -> Queue:
        if self._queues is None:
            raise FactsUnavailable(f"queue {name!r} cannot be read: the webhook is still starting")
        return self._wait(self._queues.look(namespace, name), f"queue {name!r}")

    def _find(self, resource: resources.Resource, name: str, namespace: str) -> Json | None:
        """The object, or None where the API server says that there is none."""
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
        return self._wait(work, f"{resource} {name!r}")

    def _wait(self, work: Coroutine[Any, Any, T], what: str) -> T:
        try:
            return self._loop.run(work, timeout=LOOKUP_SECONDS)
        except errors.ClusterError as exc:
            raise FactsUnavailable(f"{what} cannot be read: {exc}") from exc
        except asyncio.CancelledError as exc:
            raise FactsUnavailable(f"{what} cannot be read: the webhook is stopping") from exc


def _ended(watch: Future[None]) -> None:
    """A worker that no longer follows the cluster would judge by old facts: it makes way."""
    if not watch.cancelled() and watch.exception() is not None:
        logger.critical("watching ended; the worker stops", exc_info=watch.exception())
        os._exit(1)  # from a thread that is not the main one, where an exception ends nothing


async def _woken(registrar: RuleSync) -> None:
    registrar.wake()


async def _counted(recorder: Recorder) -> None:
    counts = metrics.EventCounts()
    while True:
        counts.take(
            written=recorder.written, dropped=dict(recorder.dropped), waiting=recorder.waiting
        )
        await asyncio.sleep(COUNT_SECONDS)


def _kept(namespace: Json) -> Json:
    """What is remembered of a namespace: its name and labels."""
    metadata = namespace.get("metadata") or {}
    return {"metadata": {"name": metadata.get("name"), "labels": metadata.get("labels") or {}}}
