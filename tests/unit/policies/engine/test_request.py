"""The pod that a workload's template becomes, as expressions see it."""

from typing import Any

import pytest

from policies.engine.request import AdmissionRequest, pod_from
from tests.policy_builders import a_namespace

Json = dict[str, Any]
SPEC = {"containers": [{"name": "c"}]}


def a_job(metadata: Json, template: Json) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }


def owned_by(name: str, uid: str) -> list[Json]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}]


@pytest.mark.parametrize(
    ("job", "metadata"),
    [
        pytest.param(
            a_job({"name": "j", "namespace": "ns", "uid": "u"}, {"spec": SPEC}),
            {"namespace": "ns", "ownerReferences": owned_by("j", "u")},
            id="a template without metadata",
        ),
        pytest.param(
            a_job(
                {"name": "j"},
                {"metadata": {"labels": {"a": "b"}, "annotations": None}, "spec": SPEC},
            ),
            {"labels": {"a": "b"}, "namespace": "team-a", "ownerReferences": owned_by("j", "")},
            id="fields without a value are left out; the namespace is that of the request",
        ),
        pytest.param(
            a_job(
                {"name": "j", "namespace": "ns", "uid": "u"},
                {"metadata": {"namespace": "other", "ownerReferences": []}, "spec": SPEC},
            ),
            {"namespace": "ns", "ownerReferences": owned_by("j", "u")},
            id="a template states neither its namespace nor its owner",
        ),
    ],
)
def test_pod_of_a_template(job: Json, metadata: Json) -> None:
    admission = AdmissionRequest.of(job, namespace=a_namespace())
    got = pod_from(admission, admission.templates[0])
    assert got == {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC}
