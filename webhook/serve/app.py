"""
The Flask application: bytes to a review, a decision to bytes. No route contains policy.

    POST /mutate, /validate    AdmissionReview in and out; HTTP 200 also for a denial
    GET  /healthz              the process is alive; independent of the API server
    GET  /readyz               503 with the reason until the webhook can decide on reviews; the
                               faults of newer policies while the last good ones are in force
    GET  /metrics              Prometheus text

A failure while deciding is a denial that names it, never an approval.

The worker's loop answers a review with `answer_now` where every fact is in memory, without Flask:
WSGI costs as much CPU as most decisions. A review that needs the API server, a large one, and a
body that is no review take the way through WSGI.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from cluster.events.correlator import EventReport
from policies.engine.deadline import CpuDeadline
from policies.engine.policyset import PolicySet
from webhook import metrics
from webhook.admission import audit, decide
from webhook.admission.decide import Decision, Facts
from webhook.facts.errors import FactsUnavailable
from webhook.review import codec
from webhook.review.codec import NotAReview, Review
from webhook.serve.decision_queues import LIGHT_BYTES

logger = logging.getLogger(__name__)

# Twice what the API server can store plus an envelope: an object and its predecessor.
BODY_LIMIT: Final = 7 * 1024 * 1024
# Namespaces remembered as watched: more than clusters have.
NAMESPACE_LIMIT: Final = 20_000
# In the denial of an object on which the decision raised an exception.
INTERNAL_FAILURE: Final = "the webhook failed to decide"


class Policies(Protocol):
    """The policies in force."""

    @property
    def current(self) -> PolicySet: ...

    def unready_reason(self) -> str | None:
        """Why no policies are in force yet, or None."""

    def degraded(self) -> str | None:
        """The faults of newer policies while the last good ones are in force, or None."""


class FactSource(Protocol):
    """Where facts about the cluster come from."""

    def facts(self, review: Review) -> Facts:
        """The facts for one review; raises `FactsUnavailable`."""

    def unready_reason(self) -> str | None:
        """Why facts are not available yet, or None."""


class Decider(Protocol):
    def __call__(
        self,
        review: Review,
        facts: Facts,
        policies: PolicySet,
        *,
        now: datetime,
        deadline: CpuDeadline,
    ) -> Decision: ...


_DECIDERS: Final[Mapping[str, Decider]] = {
    "/mutate": decide.mutate,
    "/validate": decide.validate,
}

Record = Callable[[EventReport], None]


def _discard(report: EventReport) -> None:
    """Drops the Event."""


class ReviewHandler:
    """Answers the bodies of reviews; safe from any thread."""

    def __init__(
        self,
        fact_source: FactSource,
        policies: Policies,
        *,
        record: Record,
        event_defaults: bool,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        cpu: Callable[[], float],
        needs_lookup: Callable[[Review], bool],
    ) -> None:
        self._fact_source = fact_source
        self._policies = policies
        self._record = record
        self._source_needs_lookup = needs_lookup
        self._event_defaults = event_defaults
        self._clock = clock
        self._now = now
        self._cpu = cpu
        self._watched_namespaces: set[str] = set()

    def answer(self, path: str, body: bytes) -> bytes:
        """The answer to the review in the body; raises `NotAReview`."""
        started = self._clock()
        return self._answer(path, _parsed(body), started)

    def answer_now(self, path: str, body: bytes) -> bytes | None:
        """The same; None where it may need a lookup, is large, or is no review."""
        if len(body) > LIGHT_BYTES:
            return None
        started = self._clock()
        try:
            review = codec.parse(body)
            if self._needs_lookup(review):
                return None
        except Exception:  # the way through WSGI answers it, and reports the cause
            return None
        return self._answer(path, review, started)

    def _needs_lookup(self, review: Review) -> bool:
        """Whether the decision may have to wait for the API server."""
        return (
            review.namespace not in self._watched_namespaces
            or review.subresource != ""
            or review.resource in ("bindings", "namespaces")
            or decide.needs_owner(review)
            or self._source_needs_lookup(review)
        )

    def _answer(self, path: str, review: Review, started: float) -> bytes:
        """The answer; an exception on the way there is a denial of this review."""
        try:
            decision, policies = self._decision(path, review)
            body = _rendered(review, decision, audit.annotations(decision))
        except Exception:
            _report("answer", review)
            decision, policies = _failed(), PolicySet()
            body = _rendered(review, decision, {})
        metrics.review(path, allowed=decision.allowed, seconds=self._clock() - started)
        _record_events(
            review,
            lambda: audit.reports(review, decision, policies, defaults=self._event_defaults),
            self._record,
        )
        return body

    def _decision(self, path: str, review: Review) -> tuple[Decision, PolicySet]:
        """The decision, and the policies that it is by."""
        unready = self._policies.unready_reason()  # before `current`: a set may come in between
        in_force = self._policies.current
        decide_on = _DECIDERS[path]
        deadline = CpuDeadline(self._cpu)
        decision = _decided(
            review,
            lambda: decide_on(
                review,
                self._facts(review, unready),
                in_force,
                now=self._now(),
                deadline=deadline,
            ),
        )
        if not decision.allowed:
            logger.info(
                "denied",
                extra={
                    "uid": review.uid,
                    "kind": review.kind,
                    "object": f"{review.namespace}/{review.name}",
                    "rules": [f"{f.policy}/{f.rule}" for f in decision.failures],
                },
            )
        return decision, in_force

    def _facts(self, review: Review, unready: str | None) -> Facts:
        """The facts; without policies every object would pass, so there is no decision."""
        if unready is not None:
            raise FactsUnavailable(unready)
        try:
            facts = self._fact_source.facts(review)
        except FactsUnavailable:
            self._watched_namespaces.discard(review.namespace)
            raise
        if review.namespace and review.namespace not in self._watched_namespaces:
            if len(self._watched_namespaces) >= NAMESPACE_LIMIT:
                self._watched_namespaces.clear()
            self._watched_namespaces.add(review.namespace)
        return facts


class App(Flask):
    """The application, with a fast path beside WSGI."""

    def __init__(self, handler: ReviewHandler) -> None:
        super().__init__(__name__)
        self.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT
        self.answer_now = handler.answer_now


def create_app(
    fact_source: FactSource,
    policies: Policies,
    *,
    record: Record = _discard,
    event_defaults: bool = False,
    needs_lookup: Callable[[Review], bool] = lambda review: False,
    clock: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.thread_time,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> App:
    """
    The application. `record` takes Events and must return at once; with `event_defaults` also
    Events about the defaults that policies inject. `needs_lookup` says whether the fact source
    must ask the API server about a review, beyond what the review itself shows. `cpu` counts the
    CPU seconds of the calling thread.
    """
    handler = ReviewHandler(
        fact_source,
        policies,
        record=record,
        event_defaults=event_defaults,
        clock=clock,
        now=now,
        cpu=cpu,
        needs_lookup=needs_lookup,
    )
    app = App(handler)

    def serve(path: str) -> Response:
        body = handler.answer(path, request.get_data(cache=False))
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
        reason = policies.unready_reason() or fact_source.unready_reason()
        return _text(policies.degraded() or "ok") if reason is None else _text(reason, 503)

    @app.get("/metrics")
    def exposition() -> Response:
        return Response(metrics.exposition(), content_type=metrics.CONTENT_TYPE)

    @app.errorhandler(NotAReview)
    def unreadable(exc: NotAReview) -> Response:
        metrics.unreadable()
        return _text(str(exc), 400)

    @app.errorhandler(HTTPException)
    def refused(exc: HTTPException) -> Response:
        return _text(f"{exc.name}: {exc.description}", exc.code or 500)

    return app


def _decided(review: Review, decide_on: Callable[[], Decision]) -> Decision:
    """The decision; a missing fact and a bug both deny the request."""
    try:
        return decide_on()
    except FactsUnavailable as exc:
        return decide.denied(
            "facts",
            f"admission facts unavailable: {exc}; "
            "retry, and contact the cluster admin if it persists",
        )
    except Exception:
        _report("decide", review)
        return _failed()


def _failed() -> Decision:
    return decide.denied(
        "internal", f"{INTERNAL_FAILURE} on this object; contact the cluster admin"
    )


def _report(step: str, review: Review) -> None:
    """Log the exception under way, and count it."""
    logger.exception(
        "admission decision failed",
        extra={"step": step, "uid": review.uid, "kind": review.kind},
    )
    metrics.internal_error(step)


def _parsed(body: bytes) -> Review:
    """The review; a body on which the parser itself fails is no review."""
    try:
        return codec.parse(body)
    except NotAReview:
        raise
    except Exception as exc:
        logger.exception("request body cannot be read", extra={"bytes": len(body)})
        metrics.internal_error("parse")
        raise NotAReview("the body cannot be read; see the log") from exc


def _rendered(review: Review, decision: Decision, annotations: Mapping[str, str]) -> bytes:
    return codec.answer(
        review.uid,
        allowed=decision.allowed,
        message=decision.message,
        warnings=decision.warnings,
        patch=decision.patch,
        audit=annotations,
    )


def _record_events(
    review: Review, reports: Callable[[], Iterable[EventReport]], record: Record
) -> None:
    """Queue the Events; a failure here must not turn an approval into a denial."""
    try:
        for report in reports():
            metrics.event(report.reason)
            record(report)
    except Exception:
        logger.exception("recording Events failed", extra={"uid": review.uid, "kind": review.kind})
        metrics.internal_error("events")


def _text(text: str, status: int = 200) -> Response:
    return Response(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")
