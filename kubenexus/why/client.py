"""
Finding the scheduler that works, and asking it about a pod.

    a URL is given     it is asked there
    none               the lease names the replica that leads, and the API server passes the
                       question on to it, so that whoever may use that proxy needs no other way in

The answer is the scheduler's own JSON, see `scheduler.explain.response`.
"""

from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson

from cluster import errors, resources
from cluster.client import Client
from policies import vocabulary

PATH: Final = "/explain"
PORT: Final = 10259
SECONDS: Final = 10.0

Answer = dict[str, Any]


class AskError(Exception):
    """No answer; the message says what was tried and what to do."""


def at(url: str, pod: str) -> Answer:
    """Ask the scheduler at `url` about the pod `namespace/name`."""
    target = f"{url.rstrip('/')}{PATH}?{urlencode({'pod': pod})}"
    if not target.startswith(("http://", "https://")):
        raise AskError(f"{url!r} is no address of a scheduler: want http://HOST:PORT")
    try:
        with urlopen(target, timeout=SECONDS) as response:
            return _parse(response.read())
    except HTTPError as exc:
        return _parse(exc.read())
    except (URLError, TimeoutError, ConnectionError) as exc:
        reason = getattr(exc, "reason", exc)
        raise AskError(f"no scheduler answers at {url}: {reason}") from exc


async def through(client: Client, pod: str, *, namespace: str, port: int = PORT) -> Answer:
    """Ask the leading replica through the API server."""
    lease = await _lease(client, namespace)
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    replica = holder.rpartition("_")[0]
    if not replica:
        raise AskError(
            f"no scheduler leads: lease {namespace}/{vocabulary.SCHEDULER_NAME} has no holder; "
            "look at its pods, or name a scheduler with --url"
        )
    path = resources.PODS.path(namespace, f"{replica}:{port}", "proxy") + PATH
    try:
        body = await client.raw("GET", path, query={"pod": pod}, timeout=SECONDS)
    except errors.KubeError as exc:
        raise AskError(
            f"the leading scheduler {replica} could not be asked: {exc}; "
            "name one that you can reach with --url"
        ) from exc
    return _parse(body)


async def _lease(client: Client, namespace: str) -> Answer:
    try:
        return await client.get(resources.LEASES, vocabulary.SCHEDULER_NAME, namespace=namespace)
    except errors.Gone as exc:
        raise AskError(
            f"no scheduler leads in namespace {namespace}: it has no lease "
            f"{vocabulary.SCHEDULER_NAME}; name a scheduler with --url"
        ) from exc


def _parse(body: bytes) -> Answer:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise AskError(f"the answer is no JSON: {body[:80]!r}") from exc
    if not isinstance(found, dict):
        raise AskError(f"the answer is no object: {body[:80]!r}")
    return found
