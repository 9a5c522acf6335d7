"""
Every Event that tenants meet, and what `kubenexus why` says of a start, stand on the page word for word.

The texts come from a scheduler at work where a story makes them, else from the function that does.
What kubectl and `node describe` print is compared by a cluster test.
"""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.events import correlator
from kubenexus.reference import events as happenings
from kubenexus.why import render
from policies import vocabulary
from scheduler.model import unit as units
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.pod import Pod
from scheduler.report import events
from scheduler.tenancy.preemption.victims import PreemptionReason
from scheduler.tenancy.reservation import objects
from scheduler.tenancy.reservation.members import MIN_SECONDS
from tests.pages import ROOT
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import pod_json

PAGE = (ROOT / "docs" / "tenancy.md").read_text()
FLAT = " ".join(PAGE.split())

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
OURS = {vocabulary.TENANT_LABEL: "vision"}
RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}


def lasting(duration: str) -> dict[str, str]:
    return {vocabulary.EXPECTED_DURATION_ANNOTATION: duration}


async def a_gang_waits(bench: Bench) -> None:
    """Two hosts of eight GPUs, of which twelve are in use, and a gang that requests all."""
    bench.now = START
    for number in range(2):
        bench.node(f"gpu-{number}", cpu="64", memory="512Gi", gpus=8)
    for number, (gpus, length) in enumerate(((8, "40m"), (4, "1h"))):
        bench.pod(
            f"prep-{number}",
            labels=OURS,
            annotations=lasting(length),
            cpu="8",
            gpus=gpus,
            node=f"gpu-{number}",
            status=RUNNING,
        )
    for number in range(2):
        bench.pod(f"train-{number}", labels=OURS, gang=("train", 2), cpu="8", gpus=8)
    await bench.settle(1.0)
    await bench.settle(1.0)


async def another_unit_would_delay_it(bench: Bench) -> None:
    await a_gang_waits(bench)
    bench.pod("scan", labels=OURS, cpu="8", gpus=4, annotations=lasting("3h"))
    await bench.settle(60.0)


async def work_overruns(bench: Bench) -> None:
    await a_gang_waits(bench)
    bench.delete("prep-0")
    bench.now = START + 3600.0
    await bench.settle()
    await bench.settle(11.0)


def ours(text: str) -> str:
    return text.replace("ns/", "vision/")


@pytest.mark.parametrize("pod", ["train-0", "scan"])
def test_the_start_that_why_prints_is_on_the_page(pod: str) -> None:
    bench = Bench()
    asyncio.run(another_unit_would_delay_it(bench))
    said = ours("\n".join(render.lines(bench.scheduler.explain("ns", pod) or {})))
    assert f"$ kubenexus why pod/{pod} -n vision\n{said}\n" in PAGE, said


def a_pod(name: str, namespace: str, tenant: str) -> Pod:
    obj = pod_json(name, labels={vocabulary.TENANT_LABEL: tenant})
    obj["metadata"]["namespace"] = namespace
    return Pod.read(obj)


def event_reports() -> list[correlator.EventReport]:
    """One of each, in the order of the page."""
    mine, other = a_pod("mine", "a", "a"), a_pod("other", "b", "b")
    driver = a_pod("etl-driver", "team-a", "vision")
    unit = units.Unit(units.key_of(mine), (mine,))
    request, kind = "train-0123456789-1", "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    demo = ("team-a", "demo", "u", "vision")
    bench = Bench()
    asyncio.run(work_overruns(bench))
    starts = [
        report
        for report in bench.reports
        if report.reason in (events.START_ESTIMATED, events.START_DELAYED)
    ]
    return [
        events.preempted(other, unit, PreemptionReason.RECLAIM),
        events.preempting(unit, [other]),
        *starts,
        events.member_reservation_ended(driver, "etl", "all members exist"),
        events.member_reservation_moved(driver, "etl", ["cpu-2"], "node cpu-1 was deleted"),
        events.member_reservation_incomplete(driver, "etl", 1, 2, "node cpu-1 was deleted"),
        events.tenant_reservation_started(*demo, "1 node"),
        events.tenant_reservation_incomplete(*demo, "node gpu-0 was deleted"),
        events.tenant_reservation_ended(*demo, "its time has ended"),
        events.provisioning_requested(unit, request, 4, kind),
        events.provisioned(unit, request, "Provisioned: Capacity is found in the cluster"),
        events.provisioning_failed(
            unit, request, "BookingExpired: Capacity reservation time is expired", START + 60
        ),
    ]


@pytest.mark.parametrize("one", event_reports(), ids=lambda one: one.reason)
def test_an_event_is_on_the_page(one: correlator.EventReport) -> None:
    assert f"{one.reason} {ours(one.note)}" in FLAT, f"{one.reason} {ours(one.note)}"


@pytest.mark.parametrize(
    ("excess", "borrowers"),
    [
        pytest.param(Excess("vision", "cpu", 2000, 4000, 4000), (), id="its own limit"),
        pytest.param(
            Excess("research", "nvidia.com/gpu", 8, 60, 64, is_group=True),
            (("language", 24),),
            id="the limit of its group",
        ),
    ],
)
def test_the_text_of_a_limit_is_on_the_page(
    excess: Excess, borrowers: tuple[tuple[str, int], ...]
) -> None:
    text = OverQuota("vision", excess, borrowers).text
    assert text in FLAT, text


def test_every_end_of_a_reservation_is_one_that_the_code_reports() -> None:
    _, _, rest = PAGE.partition("The Event `ReservationEnded` reports each end")
    table = rest.partition("\n\n###")[0]
    said = [text for row in re.findall(r"^\| (`.*`) \|", table, re.M) for text in row.split("`, `")]
    folder = Path(objects.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    known = [text.strip("`").replace(f"{MIN_SECONDS:g}s", "{MIN_SECONDS:g}s") for text in said]
    assert (len(known) > 6, [text for text in known if f'"{text}"' not in code]) == (True, [])


TENANCY = re.compile(r"Quota|Preempt|Start|Reservation|Provision")


def test_every_event_of_tenancy_has_its_row() -> None:
    known = {row[0] for row in happenings.SCHEDULING if TENANCY.search(row[0])}
    rows = set(re.findall(r"^\| `([A-Za-z]+)` \|", PAGE, re.M))
    assert (len(known) > 8, known - rows) == (True, set())
