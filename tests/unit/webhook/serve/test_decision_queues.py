"""A namespace floods with the largest reviews, another sends small ones."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.unit.webhook.serve.serving import PATIENCE
from webhook.serve import decision_queues
from webhook.serve.decision_queues import HEAVY_AT_ONCE, LIGHT_BYTES, DecisionQueues, Waiting
from webhook.serve.server import wait_until

LARGEST = 3 * 1024 * 1024  # what an API server takes


def a_review(namespace: str, name: str, size: int = 0) -> Waiting[str]:
    body = f'{{"request":{{"namespace":"{namespace}"}}}}'.encode().ljust(size)
    return Waiting(name, b"POST /validate HTTP/1.1\r\n\r\n" + body, ("/validate", body))


@dataclass
class Deciding:
    """Decides in the loop unless the name says `lookup`; threads wait until `go` is set."""

    seconds: dict[str, float] = field(default_factory=dict)
    threads: int = 4
    order: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.queues: DecisionQueues[str] = DecisionQueues(
            self.threads,
            decide=self.decide,
            handle=self.handle,
            wake=lambda: None,
            clock=lambda: self.now,
            cpu=lambda: self.now,
        )

    def put(self, *requests: Waiting[str]) -> list[str]:
        return [dropped for request in requests for dropped in self.queues.put(request)]

    def decide(self, waiting: Waiting[str]) -> tuple[bytes, bool] | None:
        self.now += self.seconds.get(waiting.flow, 0.001)
        if waiting.connection.startswith("lookup"):
            return None
        self.order.append(waiting.connection)
        return b"", True

    def handle(self, waiting: Waiting[str]) -> tuple[bytes, bool]:
        self.started.append(waiting.connection)
        self.go.wait(PATIENCE)
        return b"", True

    def turns(self, count: int = 1_000) -> None:
        for _ in range(count):
            if not self.queues.has_light:
                return
            list(self.queues.decide())

    def wait_for(self, ready: Callable[[], bool]) -> None:
        assert wait_until(ready, seconds=PATIENCE)

    def end(self) -> None:
        self.go.set()
        total = len(self.started)
        while True:
            list(self.queues.answers())
            if len(self.started) == total:
                break
            total = len(self.started)
        self.queues.stop()


@pytest.fixture
def deciding() -> Deciding:
    return Deciding(seconds={"flood": 0.5, "other": 0.001})


def test_a_small_review_waits_for_one_of_a_flood(deciding: Deciding) -> None:
    deciding.put(*(a_review("flood", f"flood {number}") for number in range(200)))
    deciding.turns(3)
    deciding.put(a_review("other", "other"))
    deciding.turns()
    assert deciding.order.index("other") <= 4
    assert len(deciding.order) == 201


def test_a_steady_tenant_beside_a_flood_waits_for_one_request_each_time(
    deciding: Deciding,
) -> None:
    deciding.put(*(a_review("flood", f"flood {number}") for number in range(100)))
    gaps = []
    for number in range(50):
        before = len(deciding.order)
        deciding.put(a_review("other", f"other {number}"))
        while f"other {number}" not in deciding.order:
            deciding.turns(1)
        gaps.append(deciding.order.index(f"other {number}") - before)
    assert max(gaps) <= 1


def test_large_reviews_of_a_flood_delay_no_small_one_and_no_large_one_of_another(
    deciding: Deciding,
) -> None:
    flood = [a_review("flood", f"flood {number}", LARGEST) for number in range(8)]
    assert deciding.put(*flood) == []
    deciding.put(a_review("other", "small"), a_review("other", "large", LIGHT_BYTES + 1))
    deciding.turns()
    deciding.wait_for(lambda: len(deciding.started) == HEAVY_AT_ONCE)
    assert (deciding.order, sorted(deciding.started)) == (["small"], ["flood 0", "large"])
    deciding.end()


def test_lookups_of_one_namespace_never_have_all_threads(deciding: Deciding) -> None:
    deciding.put(*(a_review("flood", f"lookup {number}") for number in range(20)))
    deciding.turns()
    deciding.wait_for(lambda: len(deciding.started) == deciding.threads - 1)
    deciding.put(a_review("other", "lookup other"))
    deciding.turns()
    deciding.wait_for(lambda: len(deciding.started) == deciding.threads)
    assert deciding.started[-1] == "lookup other"
    deciding.end()


def test_what_is_no_review_takes_a_thread_beside_a_flood(deciding: Deciding) -> None:
    deciding.put(*(a_review("flood", f"lookup {number}") for number in range(20)))
    deciding.turns()
    deciding.wait_for(lambda: len(deciding.started) == deciding.threads - 1)
    deciding.put(Waiting("health", b"GET /healthz HTTP/1.1\r\n\r\n"))
    deciding.wait_for(lambda: "health" in deciding.started)
    deciding.end()


def test_requests_that_wait_have_bounded_bytes(
    deciding: Deciding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_queues, "BYTES_LIMIT", 4 * LARGEST)
    deciding.put(a_review("other", "large", LARGEST // 2))
    flood = [a_review("flood", f"flood {number}", LARGEST) for number in range(8)]
    dropped = deciding.put(*flood)
    # One is decided, three wait, and the newest are rejected as they come.
    assert dropped == ["flood 4", "flood 5", "flood 6", "flood 7"]
    deciding.end()


def test_every_request_is_answered_once_by_threads() -> None:
    deciding = Deciding()
    deciding.go.set()
    names = [f"lookup {number}" for number in range(50)]
    deciding.put(*(a_review(f"n{number % 3}", name) for number, name in enumerate(names)))
    deciding.turns()
    got: list[str] = []

    def all_answered() -> bool:
        got.extend(answer.connection for answer in deciding.queues.answers())
        return len(got) == len(names)

    deciding.wait_for(all_answered)
    assert sorted(got) == sorted(names)
    deciding.end()
