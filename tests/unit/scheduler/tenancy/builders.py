"""Policies and pods of tenants."""

from typing import Any

from policies.documents.tenancy import Backfill, Quota, Sharing
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


MEMBER_RESOURCES = "pod-group.scheduling.kubenexus.io/member-resources"


def leader(bench: Bench, gang: str, size: int, **more: Any) -> None:
    """The pod GANG-driver, which creates the other members of its gang."""
    labels = {"pod-group.scheduling.kubenexus.io/role": "leader", **more.pop("labels", {})}
    bench.pod(f"{gang}-driver", gang=(gang, size), labels=labels, **{"cpu": "1", **more})


def member(bench: Bench, gang: str, number: int, size: int, **more: Any) -> None:
    """A member that the leader creates."""
    bench.pod(f"{gang}-{number}", gang=(gang, size), **{"cpu": "1", **more})


async def settle_gang(bench: Bench) -> None:
    """Until the scheduler expects no further members for now."""
    await bench.settle()
    await bench.settle(1.0)
    await bench.settle()


STARTED = {"phase": "Running", "startTime": "1970-01-01T00:01:40Z"}  # when the clock begins


def backfill(**policy: Any) -> PlacementTables:
    """Tables with this backfill policy."""
    return PlacementTables(
        policy=PolicyTables({}, {}, {}, (), backfill=Backfill.model_validate(policy))
    )


def running_pod(
    bench: Bench, name: str, node: str, duration: str | None = None, **more: Any
) -> None:
    """A pod of one GPU that started when the clock began."""
    bench.pod(name, node=node, owner="job", status=STARTED, **_with_duration(duration, more))


def pending_pod(bench: Bench, name: str, duration: str | None = None, **more: Any) -> None:
    """A pod of one GPU, with an expected duration or without."""
    bench.pod(name, **_with_duration(duration, more))


def _with_duration(duration: str | None, more: dict[str, Any]) -> dict[str, Any]:
    notes = {"scheduling.kubenexus.io/expected-duration": duration} if duration else {}
    return {"cpu": "0", "gpus": 1, "annotations": notes, **more}
