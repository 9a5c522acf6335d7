"""Fairness is counted in requests that are served before, never in seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.serve.fair_queue import FairQueue, flow_of


def served(queue: FairQueue[str], cost: dict[str, float], most: int = 1_000) -> list[str]:
    """The requests in the order in which one server decides them."""
    order: list[str] = []
    while len(order) < most and (found := queue.pop()) is not None:
        flow, request = found
        order.append(request)
        queue.charge(flow, cost.get(flow, 1.0))
    return order


def a_queue(*requests: str, at_once: int = 1) -> FairQueue[str]:
    """Requests such as `a1`: the first letter is the flow."""
    queue: FairQueue[str] = FairQueue(at_once=at_once)
    for request in requests:
        queue.push(request[0], request)
    return queue


@pytest.mark.parametrize(
    ("requests", "cost", "want"),
    [
        pytest.param("a1 a2 a3", {}, "a1 a2 a3", id="one flow is in order"),
        pytest.param("a1 a2 a3 b1 b2", {}, "a1 b1 a2 b2 a3", id="equal flows take turns"),
        pytest.param(
            "a1 a2 a3 b1 b2 b3 b4", {"a": 3.0}, "a1 b1 b2 b3 a2 b4 a3", id="by what they cost"
        ),
        pytest.param("b1 a1", {}, "b1 a1", id="equal flows go by their arrival"),
    ],
)
def test_order(requests: str, cost: dict[str, float], want: str) -> None:
    assert served(a_queue(*requests.split()), cost) == want.split()


def test_a_flow_that_was_silent_has_saved_nothing() -> None:
    queue = a_queue("a1", "a2", "a3", "a4")
    served(queue, {}, most=3)
    for number in range(4):
        queue.push("b", f"b{number}")
    assert served(queue, {}) == ["b0", "a4", "b1", "b2", "b3"]


def test_a_flow_cannot_start_anew_by_leaving() -> None:
    """A heavy flow that is idle for a moment is still behind the others that wait."""
    queue = a_queue("a1", "b1", "b2", "b3")
    assert served(queue, {"a": 10.0}, most=2) == ["a1", "b1"]
    queue.push("a", "a2")
    assert served(queue, {"a": 10.0}) == ["b2", "b3", "a2"]


def test_requests_of_one_flow_at_once_are_bounded() -> None:
    queue = a_queue("a1", "a2", "a3", "b1", at_once=2)
    assert [queue.pop() for _ in range(4)] == [("a", "a1"), ("a", "a2"), ("b", "b1"), None]
    queue.charge("a", 1.0)
    assert (queue.pop(), queue.pop(), len(queue)) == (("a", "a3"), None, 0)


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        pytest.param({"a1": 5, "b1": 3, "b2": 3}, "b2", id="the flow with the most bytes"),
        pytest.param({"a1": 9, "b1": 3, "b2": 3}, "a1", id="one large request"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_shedding_takes_the_newest_of_the_largest_flow(
    sizes: dict[str, int], want: str | None
) -> None:
    queue: FairQueue[str] = FairQueue(at_once=1)
    for request, size in sizes.items():
        queue.push(request[0], request, size)
    before = queue.size
    assert (queue.shed(), before) == (want, sum(sizes.values()))
    assert queue.size == before - sizes.get(want or "", 0)
    assert served(queue, {}) == [request for request in sorted(sizes) if request != want]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0.001, 5.0)), min_size=1, max_size=80),
    st.integers(0, 40),
)
def test_a_new_flow_waits_for_at_most_one_request_of_each_other(
    requests: list[tuple[str, float]], before: int
) -> None:
    cost = dict(requests)
    queue: FairQueue[str] = FairQueue(at_once=1)
    for number, (flow, _) in enumerate(requests):
        queue.push(flow, f"{flow}{number}")
    done = served(queue, cost, most=before)
    queue.push("z", "small")
    rest = served(queue, cost)
    others = [request[0] for request in rest[: rest.index("small")]]
    assert len(others) == len(set(others))
    assert sorted(done + rest) == sorted(
        [*(f"{flow}{number}" for number, (flow, _) in enumerate(requests)), "small"]
    )
    for flow in cost:
        numbers = [int(row[1:]) for row in done + rest if row[0] == flow and row != "small"]
        assert numbers == sorted(numbers)


def test_flows_without_requests_are_forgotten() -> None:
    queue: FairQueue[str] = FairQueue(at_once=1)
    most = 0
    for number in range(20_000):
        queue.push("busy", "x")
        queue.push("busy", "x")
        queue.push(f"n{number}", "x")
        served(queue, {"busy": 0.5}, most=2)
        most = max(most, queue.flows)
    # The busy flow waits all the time, so the queue is never empty.
    assert len(queue) > 0
    assert most < 20_000
    served(queue, {}, most=100_000)
    queue.push("last", "x")
    served(queue, {})
    assert queue.flows < 1_000


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b'{"request":{"name":"p","namespace":"team-a","object":{"metadata":{"namespace":"b"}}}}', "team-a"),
        (b'{"request": {"namespace" : "team-a"}}', "team-a"),
        (b'{"request":{"name":"\\"namespace\\":\\"x\\"","namespace":"team-a"}}', "team-a"),
        (b'{"request":{"kind":"Node"}}', ""),
        (b'{"request":{"x":"' + b"y" * 5_000 + b'","namespace":"team-a"}}', ""),
        (b"\xff", ""),
    ],
)  # fmt: skip
def test_the_flow_is_the_namespace(body: bytes, want: str) -> None:
    assert flow_of(body) == want
