"""Policies and pods of tenants."""

from typing import Any

from policies.documents.tenancy import Quota, Sharing
from policies.engine.policyset import PolicyTables
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench

GPU = "nvidia.com/gpu"


def tables(sharing: dict[str, Any] | None = None, **quotas: dict[str, Any]) -> PlacementTables:
    """Quotas by tenant, and the tree of tenants."""
    policy = PolicyTables(
        {},
        {},
        {},
        (),
        sharing=Sharing.model_validate(sharing or {}),
        quotas={name: Quota.model_validate(row) for name, row in quotas.items()},
    )
    return PlacementTables(policy=policy)


def tenant_pod(bench: Bench, tenant: str, name: str, **more: Any) -> None:
    """A pod of one GPU, unless `more` states other requests."""
    labels = {"tenant.kubenexus.io/name": tenant, **more.pop("labels", {})}
    bench.pod(name, labels=labels, owner="job", **{"cpu": "0", "gpus": 1, **more})
