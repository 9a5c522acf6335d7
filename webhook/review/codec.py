"""
The AdmissionReview envelope: bytes in, a frozen `Review` out; a decision in, bytes out.

The object inside stays a raw dict, so fields unknown to this program survive. A body that is no
AdmissionReview raises `NotAReview` with one line that names the fault; the caller answers 400 and
the API server follows the failurePolicy.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from webhook.review import shape

API_VERSION: Final = "admission.k8s.io/v1"
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})

# Far deeper than any workload, and shallow enough for every recursion over objects.
DEPTH_LIMIT: Final = 128

# The API server cuts longer warnings and drops what exceeds the sum.
WARNING_LIMIT: Final = 256
WARNINGS_LIMIT: Final = 4096
# kubectl shows a Status message of this length in full.
MESSAGE_LIMIT: Final = 16_384


class NotAReview(ValueError):
    """The body is no AdmissionReview that can be answered."""


@dataclass(frozen=True, slots=True)
class Review:
    """One admission request of the API server."""

    uid: str
    operation: str
    kind: str
    resource: str
    group: str = ""
    version: str = "v1"
    subresource: str = ""
    resource_api: str = "v1"
    """API version of the resource: that of the kind, except for subresources such as `scale`."""
    namespace: str = ""
    name: str = ""
    user: Mapping[str, Any] = field(default_factory=dict)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False


def parse(body: bytes) -> Review:
    """The review of a request body."""
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise NotAReview(f"the body is not JSON: {exc}") from exc
    if _is_deeper(body, envelope):
        raise NotAReview(f"the body is nested deeper than {DEPTH_LIMIT} levels; flatten the object")
    if not isinstance(envelope, dict) or envelope.get("kind") != "AdmissionReview":
        raise NotAReview("the body is no AdmissionReview")
    if envelope.get("apiVersion") != API_VERSION:
        raise NotAReview(
            f"apiVersion is {envelope.get('apiVersion')!r:.60}, want {API_VERSION}; "
            "set admissionReviewVersions to [v1]"
        )
    request = envelope.get("request")
    if not isinstance(request, dict):
        raise NotAReview("the AdmissionReview has no request")
    return _review(request)


def _is_deeper(body: bytes, value: Any) -> bool:
    """Whether the value is nested deeper than the limit."""
    if body.count(b"{") + body.count(b"[") <= DEPTH_LIMIT:
        return False  # so few brackets cannot be nested that deep
    if _ENCODER_MARGIN is not None:
        try:
            orjson.dumps(_wrapped(value, _ENCODER_MARGIN))
        except orjson.JSONEncodeError:
            return True  # no other error is possible for a value that was JSON
        return False
    return _is_deeper_by_walk(value)


def _wrapped(value: Any, times: int) -> Any:
    for _ in range(times):
        value = [value]
    return value


def _encoder_margin() -> int | None:
    """
    The number of lists around a value that make the encoder refuse exactly what is nested too deep.

    The encoder has a depth limit of its own, and checks it several times faster than Python code.
    None where it has no limit.
    """
    for times in range(_DEEPEST):
        try:
            orjson.dumps(_wrapped([], times + DEPTH_LIMIT))
        except orjson.JSONEncodeError:
            return times
    return None


_DEEPEST: Final = 1024
_ENCODER_MARGIN: Final = _encoder_margin()


def _is_deeper_by_walk(value: Any) -> bool:
    """The same, level by level."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list  # the decoder makes no other containers
        ]
        if not level:
            return False
    return True


def _review(request: Mapping[str, Any]) -> Review:
    kind, resource = _map(request, "kind"), _map(request, "resource")
    operation = _text(request, "operation")
    if operation not in _OPERATIONS:
        raise NotAReview(f"request.operation is {operation!r:.60}")
    uid = _text(request, "uid")
    if not uid:
        raise NotAReview("request.uid is missing")
    return Review(
        uid=uid,
        operation=operation,
        group=_text(kind, "group"),
        version=_text(kind, "version"),
        kind=_text(kind, "kind"),
        resource=_text(resource, "resource"),
        subresource=_text(request, "subResource"),
        resource_api="/".join(filter(None, (_text(resource, "group"), _text(resource, "version")))),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        user=_map(request, "userInfo"),
        object=_object(request, "object", kind),
        old_object=_object(request, "oldObject", kind),
        dry_run=request.get("dryRun") is True,
    )


def _map(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotAReview(f"request.{key} is no map")
    return value


def _object(parent: Mapping[str, Any], key: str, kind: Mapping[str, Any]) -> dict[str, Any] | None:
    value = parent.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise NotAReview(f"request.{key} is no object")
    fault = shape.fault(value, kind=_text(kind, "kind"))
    if fault is not None:
        raise NotAReview(f"request.{key}{fault}")
    return value


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NotAReview(f"{key} is no text")
    return value


def answer(
    uid: str,
    *,
    allowed: bool,
    message: str = "",
    warnings: Sequence[str] = (),
    patch: Sequence[Mapping[str, Any]] = (),
    audit: Mapping[str, str] | None = None,
) -> bytes:
    """The AdmissionReview to send back."""
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if not allowed:
        response["status"] = {
            "code": 403,
            "reason": "Forbidden",
            "message": _cut(message, MESSAGE_LIMIT),
        }
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(patch))).decode()
    if warnings:
        response["warnings"] = bounded(warnings)
    if audit:
        response["auditAnnotations"] = dict(audit)
    return orjson.dumps(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    )


def bounded(warnings: Sequence[str]) -> list[str]:
    """The warnings that the API server passes on, each cut to the length that it passes on."""
    passed: list[str] = []
    left = WARNINGS_LIMIT
    for warning in warnings:
        line = _cut(" ".join(warning.split()), WARNING_LIMIT)
        left -= len(line)
        if left < 0:
            break
        passed.append(line)
    return passed


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
