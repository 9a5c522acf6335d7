"""Lifting the gang gate: of which pods, and against what faults."""

import asyncio
from typing import Any

import pytest

from cluster import errors
from policies import vocabulary
from scheduler.gang.gates import GateRemover
from scheduler.model.pod import Pod, gated_by_gang_only, is_schedulable
from tests.unit.scheduler.builders import a_pod, pod_json
from tests.unit.scheduler.fake_api import FakeApiServer

OURS, FOREIGN = {"name": vocabulary.GANG_GATE}, {"name": "example.io/quota"}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(a_pod(), (False, True), id="no gate"),
        pytest.param(a_pod(schedulingGates=[OURS]), (True, True), id="the gang gate alone"),
        pytest.param(a_pod(schedulingGates=[FOREIGN]), (False, False), id="of another controller"),
        pytest.param(a_pod(schedulingGates=[OURS, FOREIGN]), (False, False), id="both"),
        pytest.param(a_pod(node="n"), (False, False), id="has a node"),
        pytest.param(
            a_pod(deleted=True, schedulingGates=[OURS]), (True, False), id="is terminating"
        ),
        pytest.param(a_pod(status={"phase": "Failed"}), (False, False), id="has ended"),
    ],
)
def test_pods_behind_the_gang_gate(pod: Pod, want: tuple[bool, bool]) -> None:
    assert (gated_by_gang_only(pod), is_schedulable(pod)) == want


def lift(
    there: dict[str, Any], *faults: Exception, may_write: bool = True, drop: bool = False
) -> tuple[list[str], list[str]]:
    """(gates lifted, refusals heard) for a pod that the watch showed behind our gate."""

    async def run() -> tuple[list[str], list[str]]:
        api = FakeApiServer(there)
        api.gate_faults.extend(faults)
        refusals: list[str] = []

        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        gates = GateRemover(
            api,
            may_write=lambda: may_write,
            on_rejection=lambda pod, why: refusals.append(f"{pod.key.name}: {why}"),
            sleep=sleep,
            failed=lambda pod, error: refusals.append(f"{pod.key.name}: {error!r}"),
        )
        shown = a_pod(schedulingGates=[OURS])
        gates.remove([shown, shown])
        if drop:
            gates.drop(shown.uid)
        workers = [asyncio.create_task(gates.run()) for _ in range(2)]
        for _ in range(60):
            await asyncio.sleep(0)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return api.removed_gates, refusals

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("there", "more", "want"),
    [
        pytest.param(pod_json(schedulingGates=[OURS]), {}, (["p"], []), id="lifted once"),
        pytest.param(pod_json(), {}, ([], []), id="already removed"),
        pytest.param(
            pod_json(schedulingGates=[FOREIGN, OURS]), {}, ([], []), id="another gate came before"
        ),
        pytest.param(pod_json(uid="other", schedulingGates=[OURS]), {}, ([], []), id="a namesake"),
        pytest.param(pod_json("gone"), {}, ([], []), id="the pod is gone"),
        pytest.param(
            pod_json(schedulingGates=[OURS]), {"may_write": False}, ([], []), id="not the leader"
        ),
        pytest.param(
            pod_json(schedulingGates=[OURS]), {"drop": True}, ([], []), id="no longer wanted"
        ),
    ],
)
def test_gate_removal(there: dict[str, Any], more: dict[str, Any], want: tuple[Any, Any]) -> None:
    assert lift(there, **more) == want


def test_a_patch_without_a_response_is_retried() -> None:
    faults = [errors.Retry("503"), errors.Retry("503")]
    assert lift(pod_json(schedulingGates=[OURS]), *faults) == (["p"], [])


def test_a_rejection_is_reported_and_not_retried() -> None:
    faults = [errors.Refused("no right", status=403)]
    assert lift(pod_json(schedulingGates=[OURS]), *faults) == ([], ["p: no right"])


def test_the_worker_goes_on_after_it_had_nothing_to_do_or_was_not_the_leader() -> None:
    async def run() -> list[list[str]]:
        names = ("p", "q", "r")
        api = FakeApiServer(*(pod_json(name, schedulingGates=[OURS]) for name in names))
        leads = True
        gates = GateRemover(
            api,
            may_write=lambda: leads,
            on_rejection=lambda pod, why: None,
            sleep=asyncio.sleep,
            failed=lambda pod, error: None,
        )
        worker = asyncio.create_task(gates.run())
        found = []
        for name in names:
            leads = name != "q"
            gates.remove([a_pod(name, schedulingGates=[OURS])])
            for _ in range(20):
                await asyncio.sleep(0)
            found.append(list(api.removed_gates))
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return found

    assert asyncio.run(run()) == [["p"], ["p"], ["p", "q", "r"]]
