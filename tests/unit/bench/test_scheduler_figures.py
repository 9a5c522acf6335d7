"""What the scheduler benchmark makes of what the witness saw."""

from pathlib import Path

import pytest

from tests.bench import scheduler_cases as cases
from tests.bench import scheduler_figures as figures
from tests.bench.scheduler_cases import NATIVE, NATIVE_RACK, OURS, STOCK, STOCK_PACKED, Case
from tests.bench.scheduler_figures import Speed, Spread
from tests.bench.scheduler_watcher import Witness, lines

FOUR_AND_TWELVE = Case("x", 8, (4, 12), gangs=True, rack=2)


def bound(*places: tuple[int, str, float]) -> dict[str, tuple[float, str]]:
    """(unit, node, time) for each pod, members numbered in order."""
    seen: dict[int, int] = {}
    found = {}
    for unit, node, at in places:
        member = seen.get(unit, 0)
        seen[unit] = member + 1
        found[cases.pod_name(unit, member)] = (at, node)
    return found


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param({}, Speed(0, 0.0, 0.0), id="nothing was bound"),
        pytest.param(bound((0, "n0000", 12.0)), Speed(1, 2.0, 2.0), id="one pod, 2 s after start"),
        pytest.param(
            bound((0, "n0000", 12.0), (0, "n0000", 16.0), (0, "n0000", 14.0)),
            Speed(3, 6.0, 2.0),
            id="first and last count, in any order of arrival",
        ),
    ],
)
def test_speed(seen: dict[str, tuple[float, str]], want: Speed) -> None:
    assert figures.speed(seen, 10.0) == want


def test_speed_from_the_first_bind_leaves_the_start_out() -> None:
    found = Speed(bound=101, seconds=10.0, first=2.0)
    assert (found.per_second, found.after_first) == (10.1, 12.5)


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(
            bound(
                *[(0, "n0000", 1.0)] * 4,
                *[(1, "n0002", 1.0)] * 8,
                *[(1, "n0003", 3.0)] * 4,
            ),
            Spread(2, 1.5, 1.0, 0.0, 0, 3, 2.0, 0),
            id="as few nodes as needed, each gang in its rack",
        ),
        pytest.param(
            bound(
                *[(0, "n0000", 1.0)] * 3,
                (0, "n0001", 1.5),
                *[(1, "n0001", 1.0)] * 6,
                *[(1, "n0002", 1.0)] * 6,
            ),
            Spread(2, 2.0, 1.5, 0.5, 1, 3, 0.5, 0),
            id="one gang split inside a rack, one whole over two racks",
        ),
        pytest.param(
            bound(*[(0, "n0000", 1.0)] * 4, *[(1, "n0001", 1.0)] * 11),
            Spread(1, 1.0, 1.0, 0.0, 0, 2, 0.0, 1),
            id="a gang that lacks one member is left partial and counts for nothing else",
        ),
    ],
)
def test_spread(seen: dict[str, tuple[float, str]], want: Spread) -> None:
    assert figures.spread(FOUR_AND_TWELVE, seen) == want


def test_a_units_wait_begins_with_its_last_member_and_ends_with_its_last_bind() -> None:
    case = Case("x", 8, (2, 1, 2), gangs=True, rate=1.0)
    created = {"u0000-000": 1.0, "u0000-001": 2.0, "u0001-000": 5.0, "u0002-000": 6.0}
    seen = bound((0, "n0000", 2.5), (0, "n0000", 2.25), (1, "n0000", 5.125), (2, "n0000", 7.0))
    assert figures.latencies(case, created, seen) == [0.5, 0.125]


@pytest.mark.parametrize(
    ("values", "share", "want"),
    [
        pytest.param([], 0.5, 0.0, id="nothing measured"),
        pytest.param([3.0, 1.0, 2.0], 0.5, 2.0, id="the middle one"),
        pytest.param([float(n) for n in range(1, 101)], 0.99, 99.0, id="p99 of a hundred"),
        pytest.param([1.0, 9.0], 0.99, 9.0, id="p99 of a few is the largest"),
    ],
)
def test_percentile(values: list[float], share: float, want: float) -> None:
    assert figures.percentile(values, share) == want


METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST"} 7
apiserver_request_total{code="409",group="",resource="pods",subresource="binding",verb="POST"} 2
apiserver_request_total{code="201",group="",resource="pods",subresource="",verb="POST"} 100
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",verb="PUT"} 50
apiserver_request_total{code="200",group="",resource="",subresource="/metrics",verb="GET"} 3
apiserver_request_total{code="201",group="events.k8s.io",resource="events",verb="POST"} 5
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 900
"""


def test_requests_are_those_of_the_scheduler_alone() -> None:
    before = figures.requests(METRICS.replace("} 7", "} 1").replace("} 5\n", "} 4\n"))
    after = figures.requests(METRICS)
    assert figures.of_scheduler(before, after) == {
        ("POST", "pods/binding"): 6,
        ("POST", "events"): 1,
    }


def test_the_witness_reports_each_pods_creation_and_bind_once() -> None:
    def pod(name: str, node: str = "", uid: str = "") -> dict[str, object]:
        spec = {"nodeName": node} if node else {}
        return {"metadata": {"name": name, "uid": uid or name}, "spec": spec}

    witness = Witness()
    witness.know(pod("old"))
    witness.know(pod("settled", "n0"))
    reported = [
        witness.see("MODIFIED", pod("settled", "n0"), 1.0),
        witness.see("MODIFIED", pod("old"), 2.0),
        witness.see("MODIFIED", pod("old", "n1"), 3.0),
        witness.see("MODIFIED", pod("old", "n1"), 4.0),
        witness.see("ADDED", pod("new"), 5.0),
        witness.see("DELETED", pod("old", "n1"), 6.0),
        witness.see("ADDED", pod("old", "n2", uid="namesake"), 7.0),
    ]
    assert "".join(reported) == (
        "bound 3.000000 old n1\ncreated 5.000000 new\ndeleted 6.000000 old\nbound 7.000000 old n2\n"
    )


def test_lines_are_whole_however_the_stream_is_cut() -> None:
    chunks = iter([b"on", b"e\ntw", b"o\n\nthree\nfo"])
    assert list(lines(chunks)) == [[], [b"one"], [b"two", b"three"]]


def test_the_mixed_case_is_the_published_one() -> None:
    case = cases.CASES["mixed@250"]
    assert (len(case.units), case.pods, case.least_nodes) == (250, 1898, 1.344)


@pytest.mark.parametrize(
    ("peer", "want"),
    [
        pytest.param(STOCK, (False, False, None), id="stock knows no gangs"),
        pytest.param(
            NATIVE, (False, True, {"schedulingPolicy": {"gang": {"minCount": 4}}}), id="native"
        ),
        pytest.param(
            NATIVE_RACK,
            (
                False,
                True,
                {
                    "schedulingPolicy": {"gang": {"minCount": 4}},
                    "schedulingConstraints": {
                        "topology": [{"key": "network.kubenexus.io/rack-id"}]
                    },
                },
            ),
            id="native inside a rack",
        ),
        pytest.param(OURS, (True, False, None), id="ours by labels"),
    ],
)
def test_the_mark_of_a_gang_is_all_that_differs(
    peer: cases.Peer, want: tuple[bool, bool, object]
) -> None:
    pod = cases.members(FOUR_AND_TWELVE, peer, 0)[0]
    group = cases.group(FOUR_AND_TWELVE, peer, 0)
    marks = (
        "labels" in pod["metadata"],
        "schedulingGroup" in pod["spec"],
        group and group["spec"],
    )
    pod["metadata"].pop("labels", None)
    for field in ("schedulingGroup", "schedulerName"):
        pod["spec"].pop(field, None)
    plain = cases.pod("u0000-000", STOCK)
    del plain["spec"]["schedulerName"]
    assert (marks, pod) == (want, plain)


def test_singles_carry_no_mark() -> None:
    case = Case("x", 8, (1,), gangs=False)
    assert [cases.members(case, peer, 0)[0]["metadata"] for peer in (OURS, NATIVE)] == [
        {"name": "u0000-000", "namespace": "bench"}
    ] * 2


def test_only_the_tuned_profile_differs_from_the_shipped_one() -> None:
    shipped, tuned = (cases.configuration(p, Path("k")) for p in (STOCK, STOCK_PACKED))
    assert shipped["profiles"] == [{"schedulerName": "default-scheduler"}]
    assert {**tuned, "profiles": []} == {**shipped, "profiles": []}
