import base64
from typing import Any

import orjson
import pytest

from webhook.review import codec
from webhook.review.codec import NotAReview, Review

Json = dict[str, Any]


def a_body(**request: Any) -> bytes:
    base = {
        "uid": "u-1",
        "operation": "CREATE",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "namespace": "ns",
        "name": "j",
        "userInfo": {"username": "ada"},
        "object": {"spec": {"odd": 1}},
    }
    return orjson.dumps(
        {"apiVersion": codec.API_VERSION, "kind": "AdmissionReview", "request": base | request}
    )


def nested(depth: int) -> Json:
    """An object of so many levels; two more stand around it."""
    found: Json = {}
    for _ in range(depth - 1):
        found = {"a": found}
    return found


def test_the_deepest_object_that_is_taken() -> None:
    obj = nested(codec.DEPTH_LIMIT - 2)
    assert codec.parse(a_body(object=obj)).object == obj


def test_many_brackets_that_are_not_nested_are_taken() -> None:
    obj: Json = {"a": [{} for _ in range(1000)]}
    assert codec.parse(a_body(object=obj)).object == obj


def test_a_review_keeps_the_object_as_it_is() -> None:
    assert codec.parse(a_body(dryRun=True, subResource="scale")) == Review(
        uid="u-1",
        operation="CREATE",
        group="batch",
        version="v1",
        kind="Job",
        resource="jobs",
        subresource="scale",
        resource_api="batch/v1",
        namespace="ns",
        name="j",
        user={"username": "ada"},
        object={"spec": {"odd": 1}},
        old_object=None,
        dry_run=True,
    )


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "no AdmissionReview"),
        (b'{"kind":"Pod"}', "no AdmissionReview"),
        (
            b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}',
            "set admissionReviewVersions",
        ),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', "no request"),
        (a_body(uid=""), "uid is missing"),
        (a_body(uid=7), "uid is no text"),
        (a_body(operation="EAT"), "operation is 'EAT'"),
        (a_body(object=[1]), "object is no object"),
        (
            a_body(object={"metadata": {"labels": 7}}),
            r"request\.object\.metadata\.labels is no map",
        ),
        (
            a_body(kind={"kind": "Pod"}, oldObject={"spec": {"containers": [{}, "x"]}}),
            r"request\.oldObject\.spec\.containers\[1\] is no map",
        ),
        (
            a_body(kind={"kind": "Pod"}, object={"spec": {"tolerations": {}}}),
            r"request\.object\.spec\.tolerations is no list",
        ),
        (a_body(object=nested(codec.DEPTH_LIMIT - 1)), "nested deeper than 128 levels; flatten"),
        (a_body(kind="Pod"), "kind is no map"),
        (a_body(namespace={}), "namespace is no text"),
    ],
)
def test_a_body_that_is_no_review_gives_a_one_line_error(body: bytes, want: str) -> None:
    with pytest.raises(NotAReview, match=want) as caught:
        codec.parse(body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"allowed": True}, {"uid": "u", "allowed": True}, id="allowed"),
        pytest.param(
            {"allowed": False, "message": "no"},
            {
                "uid": "u",
                "allowed": False,
                "status": {"code": 403, "reason": "Forbidden", "message": "no"},
            },
            id="refused",
        ),
        pytest.param(
            {"allowed": True, "patch": [{"op": "add", "path": "/a", "value": 1}]},
            {
                "uid": "u",
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(b'[{"op":"add","path":"/a","value":1}]').decode(),
            },
            id="a patch is base64 beside its type",
        ),
        pytest.param(
            {"allowed": True, "warnings": ["a\nb", "x" * 300], "audit": {"k": "v"}},
            {
                "uid": "u",
                "allowed": True,
                "warnings": ["a b", "x" * 255 + "…"],
                "auditAnnotations": {"k": "v"},
            },
            id="warnings are one line each and cut",
        ),
        pytest.param(
            {"allowed": True, "warnings": ["y" * 256] * 20},
            {"uid": "u", "allowed": True, "warnings": ["y" * 256] * 16},
            id="no more warnings than the API server passes on",
        ),
    ],
)
def test_answers(given: Json, want: Json) -> None:
    got = orjson.loads(codec.answer("u", **given))
    assert got == {"apiVersion": codec.API_VERSION, "kind": "AdmissionReview", "response": want}
