"""Where objects live in the API."""

import pytest

from cluster import resources
from cluster.resources import Resource


@pytest.mark.parametrize(
    ("resource", "place", "want"),
    [
        pytest.param(resources.PODS, (), "/api/v1/pods", id="all namespaces"),
        pytest.param(resources.PODS, ("ns",), "/api/v1/namespaces/ns/pods", id="one namespace"),
        pytest.param(
            resources.PODS,
            ("ns", "p", "binding"),
            "/api/v1/namespaces/ns/pods/p/binding",
            id="a subresource",
        ),
        pytest.param(resources.NODES, ("ns", "n"), "/api/v1/nodes/n", id="outside namespaces"),
        pytest.param(
            resources.LEASES,
            ("ns", "l"),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l",
            id="a named group",
        ),
        pytest.param(
            Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
            (None, "system:node x"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%20x",
            id="a name that needs quoting",
        ),
        pytest.param(
            resources.PLATFORM_POLICIES,
            (None, "p"),
            "/apis/policy.kubenexus.io/v1alpha1/platformpolicies/p",
            id="a policy of this product",
        ),
    ],
)
def test_the_path_of_an_object(
    resource: Resource, place: tuple[str | None, ...], want: str
) -> None:
    assert resource.path(*place) == want


def test_every_resource_stands_for_one_place() -> None:
    known = [value for value in vars(resources).values() if isinstance(value, Resource)]
    assert len({resource.path() for resource in known}) == len(known)
