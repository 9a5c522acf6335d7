"""What is said about reservations is on the page about troubleshooting, word for word."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.checks import reservation
from scheduler.model.pod import Pod
from scheduler.report import events
from scheduler.tenancy.reservation import tenant_upcoming
from tests.builders import a_pod, in_gang
from tests.pages import ROOT

Json = dict[str, Any]
PAGE = ROOT / "docs" / "troubleshooting.md"


def reservation_warnings() -> list[str]:
    hosts = [
        {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8"}}} for name in ("m", "n")
    ]
    until = "2030-01-01T00:00:00Z"
    whole: Json = {"tenant": "vision", "nodes": ["m"], "until": until}
    others = [{"metadata": {"name": "o"}, "spec": whole}]
    specs: tuple[Json, ...] = (
        {"nodes": ["a", "b"]},
        {"nodeSelector": {"disk": "fast"}},
        {"count": 5, "resources": {"cpu": "3"}},
    )
    ground = reservation.ReservationFacts.of(hosts, (), (), exclude="")
    crowded = reservation.ReservationFacts.of(hosts, others, ("vision",), exclude="")
    now = datetime(2026, 6, 1, tzinfo=UTC)
    objects = [{"spec": {"tenant": "vision", "until": until, **spec}} for spec in specs]
    reservation_texts = [
        text for one in objects for text in reservation.warnings(one, ground, now=now)
    ]
    large = {"spec": {**whole, "nodes": [], "count": 2, "resources": {"cpu": "6"}}}
    return [*reservation_texts, *reservation.warnings(large, crowded, now=now)]


def reservation_texts() -> list[str]:
    leader = Pod.read(a_pod("train-0", labels=in_gang("train", 4)))
    return [
        events.member_reservation_incomplete(leader, "train", 1, 2, "node a was deleted").note,
        events.member_reservation_moved(leader, "train", ["a", "b"], "node c was deleted").note,
        events.tenant_reservation_incomplete("ns", "r", "u", "vision", "node a was deleted").note,
        tenant_upcoming.RESERVED,
        *reservation_warnings(),
    ]


@pytest.mark.parametrize("text", reservation_texts())
def test_every_reservation_text_is_on_the_page(text: str) -> None:
    assert text in " ".join(PAGE.read_text().split())


def test_every_warning_is_found() -> None:
    assert len(reservation_warnings()) == 7
