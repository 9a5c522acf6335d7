"""
Undo what would outlive the programs: the registration, and scheduling gates.

    delete both configurations --> wait until pods bypass the webhook --> remove gates --> done

API servers notice a deleted configuration a moment later, each in its own time, and would deny pods
if the webhook were already stopped. So the answer must stay the same for a while. Pods keep what
admission wrote; pending pods of our scheduler stay pending until another scheduler takes them.
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
    """Delete both configurations of this name and wait until pods bypass the webhook."""
    for resource in register.RESOURCES.values():
        with contextlib.suppress(errors.Gone):
            await client.delete(resource, name)
    quiet = 0

    async def check() -> str:
        nonlocal quiet
        try:
            quiet = 0 if await probe.mutates(client, namespace) else quiet + 1
        except errors.KubeError as exc:
            quiet = 0
            return str(exc)
        return "" if quiet >= _SETTLED else "pods are still sent to the webhook"

    await register.until(check, failure="admission did not end", seconds=seconds)


async def remove_gates(client: Client) -> int:
    """Remove our scheduling gate from every pod; the number of pods that had it."""
    pods = await client.list(PODS)
    gated = [pod for pod in pods.items if _gate_index(pod) is not None]
    for pod in gated:
        await _remove_gate(client, pod)
    return len(gated)


async def _remove_gate(client: Client, pod: Mapping[str, Any]) -> None:
    about = pod["metadata"]
    with contextlib.suppress(errors.Gone):
        while (index := _gate_index(pod)) is not None:
            try:
                await client.patch(
                    PODS,
                    about["name"],
                    removal(index),
                    namespace=about["namespace"],
                    kind=PatchKind.JSON,
                )
                return
            except (errors.Conflict, errors.Refused):
                # Another client removed a gate first, and the indexes moved.
                again = await client.get(PODS, about["name"], namespace=about["namespace"])
                if _gate_index(again) == index:
                    raise
                pod = again


def removal(index: int) -> Sequence[Mapping[str, Any]]:
    at = f"/spec/schedulingGates/{index}"
    return (
        {"op": "test", "path": f"{at}/name", "value": vocabulary.GANG_GATE},
        {"op": "remove", "path": at},
    )


def _gate_index(pod: Mapping[str, Any]) -> int | None:
    names = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or ()]
    return names.index(vocabulary.GANG_GATE) if vocabulary.GANG_GATE in names else None


async def delete_secrets(client: Client, *, namespace: str, secrets: Sequence[str]) -> None:
    """Delete secrets that a hook created outside of the Helm release."""

    async def one(name: str) -> None:
        with contextlib.suppress(errors.Gone):
            await client.delete(SECRETS, name, namespace=namespace)

    await asyncio.gather(*(one(name) for name in secrets))
