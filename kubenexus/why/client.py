"""
Calls the /explain endpoint of the scheduler.

    with a URL     directly
    without        of the leader, which the lease names, through the proxy of the API server: users
                   with the right to use that proxy need no other access

The response is JSON, see `scheduler.explain.response`.
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

Explanation = dict[str, Any]


class ExplainError(Exception):
    """No explanation; the message tells what was tried and what to do."""


def explain_at(url: str, pod: str) -> Explanation:
    """Explain the pod `namespace/name` by the scheduler at `url`."""
    target = f"{url.rstrip('/')}{PATH}?{urlencode({'pod': pod})}"
    if not target.startswith(("http://", "https://")):
        raise ExplainError(f"{url!r} is not an address: want http://HOST:PORT")
    try:
        with urlopen(target, timeout=SECONDS) as response:
            return _parse(response.read())
    except HTTPError as exc:
        return _parse(exc.read())
    except (URLError, TimeoutError, ConnectionError) as exc:
        reason = getattr(exc, "reason", exc)
        raise ExplainError(f"no scheduler responds at {url}: {reason}") from exc


async def explain_by_leader(
    client: Client, pod: str, *, namespace: str, port: int = PORT
) -> Explanation:
    """Explain the pod by the leader, through the API server."""
    lease = await _lease(client, namespace)
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    replica = holder.rpartition("_")[0]
    if not replica:
        raise ExplainError(
            f"there is no leader: lease {namespace}/{vocabulary.SCHEDULER_NAME} has no holder; "
            "check the scheduler's pods, or give an address with --url"
        )
    path = resources.PODS.path(namespace, f"{replica}:{port}", "proxy") + PATH
    try:
        body = await client.raw("GET", path, query={"pod": pod}, timeout=SECONDS)
    except errors.KubeError as exc:
        raise ExplainError(
            f"cannot reach the leader {replica}: {exc}; give a reachable address with --url"
        ) from exc
    return _parse(body)


async def _lease(client: Client, namespace: str) -> Explanation:
    try:
        return await client.get(resources.LEASES, vocabulary.SCHEDULER_NAME, namespace=namespace)
    except errors.Gone as exc:
        raise ExplainError(
            f"there is no leader: namespace {namespace} has no lease {vocabulary.SCHEDULER_NAME}; "
            "give the namespace with --system-namespace, or an address with --url"
        ) from exc


def _parse(body: bytes) -> Explanation:
    try:
        explanation = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise ExplainError(f"the response is not JSON: {body[:80]!r}") from exc
    if not isinstance(explanation, dict):
        raise ExplainError(f"the response is not a JSON object: {body[:80]!r}")
    return explanation
