"""Which of the stored objects the administrator deletes first."""

from typing import Any

import pytest

from tests.hostile.attack import floods
from tests.hostile.requests import Request


def a_request(body: Any, path: str = "/apis/apps/v1/namespaces/hostile/deployments") -> Request:
    return Request(0, "create", "POST", path, body)


@pytest.mark.parametrize(
    ("drawn", "want"),
    [
        pytest.param(a_request({"spec": {"replicas": 20}}), False, id="twenty pods"),
        pytest.param(a_request({"spec": {"replicas": 21}}), True, id="more than twenty pods"),
        pytest.param(a_request({"spec": {"parallelism": 2**31 - 1}}), True, id="a Job"),
        pytest.param(
            a_request({"spec": {"replicas": 21}}, "/x?dryRun=All"), False, id="by dry run"
        ),
        pytest.param(a_request({"spec": {"replicas": "x"}}), False, id="no number"),
        pytest.param(a_request([{"op": "add"}]), False, id="a JSON patch"),
        pytest.param(a_request({"data": {}}), False, id="no spec"),
    ],
)
def test_a_workload_of_many_pods_goes_early(drawn: Request, want: bool) -> None:
    assert floods(drawn) == want
