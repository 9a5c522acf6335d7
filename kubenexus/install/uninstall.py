"""
What must be gone before the programs are: the registration, and gates that nobody would lift.

    delete both configurations --> wait until pods are no longer seen --> lift gates --> done

The wait is for the API server: it notices a deleted configuration a moment later, and would refuse
pods if the webhook were gone by then. Several API servers notice each in its own time, so that the
answer must stay the same for a while. Pods keep what admission wrote on them; what names the
scheduler of this product waits until something else places it or it is deleted.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster import errors
from cluster.client import Client
from cluster.resources import PODS, SECRETS
from cluster.verbs import PatchKind
from kubenexus.install import probe, register
from policies import vocabulary

_SETTLED: Final = 3  # answers in a row, a second apart


async def unregister(client: Client, *, name: str, namespace: str, seconds: float) -> None:
    """Delete both configurations of this name and wait until pods are made without them."""
    for resource in register.RESOURCES.values():
        with contextlib.suppress(errors.Gone):
            await client.delete(resource, name)
    quiet = 0

    async def ask() -> str:
        nonlocal quiet
        try:
            quiet = 0 if await probe.mutates(client, namespace) else quiet + 1
        except errors.KubeError as exc:
            quiet = 0
            return str(exc)
        return "" if quiet >= _SETTLED else "pods are still sent to the webhook"

    await register.until(ask, what="admission did not end", seconds=seconds)


async def remove_gates(client: Client) -> int:
    """Take this product's gate off every pod that has it; how many had."""
    pods = await client.list(PODS)
    held = [pod for pod in pods.items if _place(pod) is not None]
    for pod in held:
        await _lift(client, pod)
    return len(held)


async def _lift(client: Client, pod: Mapping[str, Any]) -> None:
    about = pod["metadata"]
    with contextlib.suppress(errors.Gone):
        while (place := _place(pod)) is not None:
            try:
                await client.patch(
                    PODS,
                    about["name"],
                    lifted(place),
                    namespace=about["namespace"],
                    kind=PatchKind.JSON,
                )
                return
            except (errors.Conflict, errors.Refused):
                # Somebody lifted a gate first, and the places moved.
                again = await client.get(PODS, about["name"], namespace=about["namespace"])
                if _place(again) == place:
                    raise
                pod = again


def lifted(place: int) -> Sequence[Mapping[str, Any]]:
    at = f"/spec/schedulingGates/{place}"
    return (
        {"op": "test", "path": f"{at}/name", "value": vocabulary.GANG_GATE},
        {"op": "remove", "path": at},
    )


def _place(pod: Mapping[str, Any]) -> int | None:
    names = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or ()]
    return names.index(vocabulary.GANG_GATE) if vocabulary.GANG_GATE in names else None


async def delete_secrets(client: Client, *, namespace: str, secrets: Sequence[str]) -> None:
    """Delete secrets that a hook made and Helm knows nothing of."""

    async def one(name: str) -> None:
        with contextlib.suppress(errors.Gone):
            await client.delete(SECRETS, name, namespace=namespace)

    await asyncio.gather(*(one(name) for name in secrets))
