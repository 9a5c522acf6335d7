"""
The Kueue queue of each workload: an audit reads both kinds once, and controllers when needed.

The rule is the webhook's: the highest controller that names a queue decides, else the object
itself, or the pods it makes. Without Kueue in the cluster nothing is read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from cluster import discovery, resources, verbs
from cluster.resources import Resource
from cluster.responses import Page
from policies.engine import kueue
from policies.engine.kueue import ClusterQueue, Queue
from policies.json_fields import Json
from webhook.admission import decide
from webhook.facts import queue_lookup
from webhook.review.codec import Review

Pages = Callable[[Resource], AsyncIterator[Page]]
Controller = Callable[[Json, str], Awaitable[Json | None]]

_KINDS: Final = (resources.LOCAL_QUEUES, resources.CLUSTER_QUEUES)


class AuditQueues:
    """Filled by `read`; `controller` reads the controller of an object in a namespace."""

    def __init__(self, *, controller: Controller) -> None:
        self._controller = controller
        self._served = False
        self._local: dict[tuple[str, str], str] = {}  # namespace, name -> ClusterQueue
        self._cluster: dict[str, ClusterQueue] = {}
        self._with_queues: set[str] = set()  # namespaces with queues
        self._queue_above: dict[str, str] = {}  # uid of a controller -> queue

    async def read(self, client: verbs.Sends, pages: Pages) -> None:
        rows = await discovery.served(client, groups={kind.group for kind in _KINDS})
        served = {row.name: row.resource for row in rows}
        if any(kind.plural not in served for kind in _KINDS):
            return
        self._served = True
        local, cluster = (served[kind.plural] for kind in _KINDS)
        async for page in pages(local):
            for obj in page.items:
                about = obj["metadata"]
                self._local[about["namespace"], about["name"]] = kueue.cluster_queue_of(obj)
                self._with_queues.add(about["namespace"])
        async for page in pages(cluster):
            self._cluster |= {obj["metadata"]["name"]: ClusterQueue.read(obj) for obj in page.items}

    async def of(self, review: Review) -> Queue | None:
        """The queue of an object; None: it has none."""
        if not decide.needs_queue(review):
            return None
        obj, namespace = review.object or {}, review.namespace
        name = await self._name_above(obj, namespace) if namespace in self._with_queues else ""
        name = name or kueue.name_in(obj)
        if not name:
            return None
        leads_to = self._local.get((namespace, name))
        return Queue(name, leads_to, self._cluster.get(leads_to or ""), self._served)

    async def _name_above(self, obj: Json, namespace: str) -> str:
        reference = queue_lookup.controller_of(obj)
        if reference is None:
            return ""
        uid = str(reference.get("uid"))
        if uid not in self._queue_above:
            name, controller = "", await self._controller(obj, namespace)
            for _ in range(queue_lookup.GENERATIONS):
                if controller is None:
                    break
                name = kueue.name_of(controller) or name
                controller = await self._controller(controller, namespace)
            self._queue_above[uid] = name
        return self._queue_above[uid]
