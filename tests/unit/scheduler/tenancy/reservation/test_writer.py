"""Writes of ResourceReservations: which are done, and which must be tried again."""

import asyncio

import pytest

from cluster import errors
from scheduler.tenancy.reservation.writer import ReservationWriter
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations


@pytest.mark.parametrize(
    ("leads", "exists", "fault", "done", "left"),
    [
        pytest.param(True, True, None, True, False, id="it is deleted"),
        pytest.param(True, False, None, True, False, id="it does not exist"),
        pytest.param(True, True, errors.Retry("503"), False, True, id="no answer: once more"),
        pytest.param(True, True, errors.Refused("no"), False, True, id="denied: once more"),
        pytest.param(False, True, None, True, True, id="the leader deletes it, not this process"),
    ],
)
def test_deletion(
    leads: bool, exists: bool, fault: errors.KubeError | None, done: bool, left: bool
) -> None:
    store = FakeReservations()
    if exists:
        store.objects["r"] = {"metadata": {"name": "r", "namespace": "ns", "uid": "u"}}
    if fault is not None:
        store.delete_faults.append(fault)
    writer = ReservationWriter(store, now=lambda: 0.0, sleep=asyncio.sleep, may_write=lambda: leads)
    assert (asyncio.run(writer.delete(("ns", "r"))), "r" in store.objects) == (done, left)
