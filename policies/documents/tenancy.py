"""
The parts of policy documents that divide capacity between tenants: quotas, shares, backfill.

Amounts are named as Kubernetes names resources, or by what a GPU is:

    cpu, memory, nvidia.com/gpu     what pods request, on any node
    gpu-model/H100                  GPUs on nodes whose GPUs have this model
    hardware-tier/premium           GPUs on nodes of this hardware tier

Tenants stand in a tree. A name in `sharing.tenants` is a tenant, or a group of those that name it
as their parent; a tenant that is not listed stands at the top with weight 1.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from policies import quantity, vocabulary
from policies.documents.rules import LABEL_VALUE, Duration, Many, Part, Quantity

GPU_MODEL: Final = "gpu-model/"
HARDWARE_TIER: Final = "hardware-tier/"

TenantName = Annotated[str, StringConstraints(pattern=LABEL_VALUE, min_length=1)]
WorkloadType = Literal["training", "inference", "batch", "service", "interactive"]

_PLAIN: Final = re.compile(r"cpu|memory|pods|ephemeral-storage|hugepages-[0-9]+[KMGT]i")
_EXTENDED: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)


class Quota(Part):
    """The guaranteed and the max amounts of a tenant."""

    guaranteed: dict[str, Quantity] = Field(
        default_factory=dict, description="Resource name to quantity; reclaimed from borrowers."
    )
    max: dict[str, Quantity] = Field(
        default_factory=dict, description="Resource name to quantity; never exceeded."
    )

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name in (*self.guaranteed, *self.max):
            if (problem := _name_fault(name)) is not None:
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _guaranteed_below_max(self) -> Self:
        for name, amount in self.guaranteed.items():
            if name in self.max and quantity.parse(amount) > quantity.parse(self.max[name]):
                raise ValueError(f"guaranteed {name} {amount} is above max {self.max[name]}")
        return self


def _name_fault(name: str) -> str | None:
    tier = name.removeprefix(HARDWARE_TIER)
    if tier != name and tier not in vocabulary.HARDWARE_TIERS:
        return f"found {name!r}, want one of {', '.join(vocabulary.HARDWARE_TIERS)} after the slash"
    if resource_name_fault(name) is None:
        return None
    return (
        f"found {name!r}, want a resource such as cpu, memory or nvidia.com/gpu,"
        f" {GPU_MODEL}NAME or {HARDWARE_TIER}NAME"
    )


def resource_name_fault(name: str) -> str | None:
    """The fault of a resource name, or None."""
    if _PLAIN.fullmatch(name) or _EXTENDED.fullmatch(name):
        return None
    return f"found {name!r}, want a resource such as cpu, memory or nvidia.com/gpu"


class Share(Part):
    """A tenant's place among the others, or a group of tenants."""

    name: TenantName = Field(description="Name of a tenant, or of a group of tenants.")
    parent: TenantName | None = Field(
        default=None, description="The group that it belongs to; absent at the top."
    )
    weight: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Its part of what its siblings share.",
    )
    quota: Quota = Field(
        default_factory=Quota,
        description="For a group: guaranteed and max amounts of its tenants together.",
    )


class Sharing(Part):
    """How capacity is divided between tenants that compete for it."""

    half_life: Duration = Field(
        default="1h", description="After this time, the usage of a tenant counts half as much."
    )
    tenants: Many[Share] = Field(default=(), description="Tenants and groups of tenants.")


class TypeDuration(Part):
    """The run time of a workload type, for pods that state none."""

    type: WorkloadType = Field(description="Workload type.")
    duration: Duration = Field(description="How long it is expected to run.")


class Backfill(Part):
    """Small work that runs before a unit waiting for capacity, without delaying it."""

    durations: Many[TypeDuration] = Field(
        default=(), description="Expected durations by workload type, where a pod states none."
    )
    overrun: Literal["move", "preempt"] = Field(
        default="move",
        description="Work that runs longer than expected: move the expected start, or preempt it.",
    )
