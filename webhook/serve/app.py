"""
The Flask shell: bytes to a review, a decision to bytes. No route decides anything about policy.

    POST /mutate, /validate    AdmissionReview in and out; HTTP 200 also for a refusal
    GET  /healthz              the process answers; independent of the API server
    GET  /readyz               503 with the reason until reviews can be judged; what is wrong
                               with newer policies while the last good ones are served
    GET  /metrics              Prometheus text

Whatever goes wrong while judging is a refusal that says so, never an approval.

A review whose facts are all at hand is also answered `at_once`, without Flask, by the thread that
read it from its socket: HTTP's machinery costs as much as most verdicts. What has to wait for the
API server, is large, or is no review comes by WSGI.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from cluster.events.correlator import EventReport
from policies.engine.policyset import PolicySet
from webhook import metrics
from webhook.admission import audit, decide
from webhook.admission.decide import Decision, Facts
from webhook.review import codec as review
from webhook.review.codec import NotAReview, Review

logger = logging.getLogger(__name__)

# Twice what the API server can store plus an envelope: an object and its predecessor.
BODY_LIMIT: Final = 7 * 1024 * 1024
# Larger ones take their time, and who reads from sockets has none to give.
AT_ONCE_LIMIT: Final = 128 * 1024
# Namespaces that are remembered as known: more than clusters have.
SEEN_LIMIT: Final = 20_000


class FactsUnavailable(Exception):
    """A fact that the verdict needs cannot be had now; its message is shown to the user."""


class Policies(Protocol):
    """The policies in force."""

    @property
    def current(self) -> PolicySet: ...

    def not_ready(self) -> str | None:
        """Why nothing can be judged yet, or None."""

    def degraded(self) -> str | None:
        """What is wrong while the last good policies are served, or None."""


class FactSource(Protocol):
    """What the shell can find out."""

    def facts(self, asked: Review) -> Facts:
        """The facts for one review; raises `FactsUnavailable`."""

    def not_ready(self) -> str | None:
        """Why reviews cannot be judged yet, or None."""


class Decider(Protocol):
    def __call__(
        self, review: Review, facts: Facts, policies: PolicySet, *, now: datetime
    ) -> Decision: ...


_DECIDERS: Final[Mapping[str, Decider]] = {
    "/mutate": decide.mutate,
    "/validate": decide.validate,
}

Record = Callable[[EventReport], None]


def _to_nobody(report: EventReport) -> None:
    """Nobody wants to know."""


class ReviewHandler:
    """Bodies in, answers out; any thread may ask."""

    def __init__(
        self,
        world: FactSource,
        policies: Policies,
        *,
        record: Record,
        event_defaults: bool,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        waits: Callable[[Review], bool],
    ) -> None:
        self._world, self._policies, self._record = world, policies, record
        self._must_ask = waits
        self._event_defaults, self._clock, self._now = event_defaults, clock, now
        self._seen: set[str] = set()  # namespaces that the world knew: it will know them again

    def answer(self, path: str, body: bytes) -> bytes:
        """The answer to the review in the body; raises `NotAReview`."""
        started = self._clock()
        return self._answer(path, review.parse(body), started)

    def at_once(self, path: str, body: bytes) -> bytes | None:
        """The same, or None where it may have to wait or cannot be read."""
        if len(body) > AT_ONCE_LIMIT:
            return None
        started = self._clock()
        try:
            asked = review.parse(body)
        except NotAReview:
            return None
        return None if self._waits(asked) else self._answer(path, asked, started)

    def _waits(self, asked: Review) -> bool:
        """Whether the API server may have to be waited for."""
        return (
            asked.namespace not in self._seen
            or asked.subresource != ""
            or asked.resource in ("bindings", "namespaces")
            or decide.needs_owner(asked)
            or self._must_ask(asked)
        )

    def _answer(self, path: str, asked: Review, started: float) -> bytes:
        missing = self._policies.not_ready()  # asked first: the set may come in force in between
        in_force = self._policies.current
        judge = _DECIDERS[path]
        decision = _decided(
            asked, lambda: judge(asked, self._known(asked, missing), in_force, now=self._now())
        )
        if not decision.allowed:
            logger.info(
                "denied",
                extra={
                    "uid": asked.uid,
                    "kind": asked.kind,
                    "object": f"{asked.namespace}/{asked.name}",
                    "rules": [f"{f.policy}/{f.rule}" for f in decision.failures],
                },
            )
        body = review.answer(
            asked.uid,
            allowed=decision.allowed,
            message=decision.message,
            warnings=decision.warnings,
            patch=decision.patch,
            audit=audit.annotations(decision),
        )
        metrics.review(path, allowed=decision.allowed, seconds=self._clock() - started)
        _tell(
            asked,
            lambda: audit.reports(asked, decision, in_force, defaults=self._event_defaults),
            self._record,
        )
        return body

    def _known(self, asked: Review, missing: str | None) -> Facts:
        """The facts; without the policies everything would pass, so nothing is judged by then."""
        if missing is not None:
            raise FactsUnavailable(missing)
        try:
            found = self._world.facts(asked)
        except FactsUnavailable:
            self._seen.discard(asked.namespace)
            raise
        if asked.namespace and asked.namespace not in self._seen:
            if len(self._seen) >= SEEN_LIMIT:
                self._seen.clear()
            self._seen.add(asked.namespace)
        return found


class App(Flask):
    """The application, with a door that needs no WSGI."""

    def __init__(self, reviews: ReviewHandler) -> None:
        super().__init__(__name__)
        self.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT
        self.at_once = reviews.at_once


def create_app(
    world: FactSource,
    policies: Policies,
    *,
    record: Record = _to_nobody,
    event_defaults: bool = False,
    waits: Callable[[Review], bool] = lambda asked: False,
    clock: Callable[[], float] = time.perf_counter,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> App:
    """
    The application. `record` takes what is worth an Event and must return at once; with
    `event_defaults` what policies inject is worth one too. `waits` says of a review whether the
    world has to ask somebody about it, beyond what the review itself shows.
    """
    reviews = ReviewHandler(
        world,
        policies,
        record=record,
        event_defaults=event_defaults,
        clock=clock,
        now=now,
        waits=waits,
    )
    app = App(reviews)

    def serve(path: str) -> Response:
        body = reviews.answer(path, request.get_data(cache=False))
        return Response(body, content_type="application/json")

    @app.post("/mutate")
    def mutate() -> Response:
        return serve("/mutate")

    @app.post("/validate")
    def validate() -> Response:
        return serve("/validate")

    @app.get("/healthz")
    def healthz() -> Response:
        return _text("ok")

    @app.get("/readyz")
    def readyz() -> Response:
        reason = policies.not_ready() or world.not_ready()
        return _text(policies.degraded() or "ok") if reason is None else _text(reason, 503)

    @app.get("/metrics")
    def exposition() -> Response:
        return Response(metrics.exposition(), content_type=metrics.CONTENT_TYPE)

    @app.errorhandler(NotAReview)
    def unreadable(exc: NotAReview) -> Response:
        metrics.UNREADABLE.inc()
        return _text(str(exc), 400)

    @app.errorhandler(HTTPException)
    def refused(exc: HTTPException) -> Response:
        return _text(f"{exc.name}: {exc.description}", exc.code or 500)

    return app


def _decided(asked: Review, judge: Callable[[], Decision]) -> Decision:
    """The decision; a fact that cannot be had and a bug in a rule both refuse the request."""
    try:
        return judge()
    except FactsUnavailable as exc:
        return decide.refused(
            "facts", f"cannot be judged now: {exc}", "try again; if it goes on, tell the admin"
        )
    except Exception:
        logger.exception("judging failed", extra={"uid": asked.uid, "kind": asked.kind})
        return decide.refused(
            "internal", "judging this object failed inside the webhook", "tell the cluster admin"
        )


def _tell(asked: Review, reports: Callable[[], Iterable[EventReport]], record: Record) -> None:
    """Queue the Events; what goes wrong here must not turn an answer into a refusal."""
    try:
        for one in reports():
            metrics.EVENTS.labels(one.reason).inc()
            record(one)
    except Exception:
        logger.exception("reporting failed", extra={"uid": asked.uid, "kind": asked.kind})


def _text(text: str, status: int = 200) -> Response:
    return Response(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")
