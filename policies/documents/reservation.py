"""
ResourceReservation: capacity reserved before its pods exist.

    podGroup          for members that a gang's leader is going to create; written by the scheduler,
                      with the node of each of them
    tenant, and       for a tenant, by an administrator: whole nodes, or an amount (`count` times
    nodes or count    `resources`) on any node or on those that are named, from a time until a time

The model accepts or rejects one object at a time. Admission decides who may write it, the scheduler
what becomes of it.
"""

from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies import bounds, quantity
from policies.documents.rules import LabelKey, LabelValue, Many, Name, Part, Quantity, Time
from policies.documents.tenancy import TenantName, resource_name_fault
from policies.text import timestamp

MOST: Final = 10_000  # places of one reservation


class Place(Part):
    """The node that is reserved for one pod."""

    node: Name = Field(description="Name of the node.")
    assigned: str = Field(
        default="", description="NUMA nodes and GPUs there, as on a pod's assigned annotation."
    )


class PodGroupMembers(Part):
    """A gang whose leader creates the members."""

    name: LabelValue = Field(min_length=1, description="Name of the gang.")
    leader: str = Field(min_length=1, description="UID of the leader.")
    members: int = Field(
        ge=1, le=MOST, description="Members for which capacity is reserved at first."
    )
    resources: dict[str, Quantity] = Field(
        description="Resource name to quantity: what each member is going to request."
    )
    places: Many[Place] = Field(
        max_length=MOST, description="A node for each of them, as first planned."
    )


class Spec(Part):
    """For which tenant or gang capacity is reserved, where, how much and how long."""

    tenant: TenantName | None = Field(default=None, description="The tenant whose pods may use it.")
    pod_group: PodGroupMembers | None = Field(
        default=None, description="Written by the scheduler: a gang whose members do not exist yet."
    )
    nodes: Many[Name] = Field(
        default=(),
        max_length=MOST,
        description="Names of the nodes to reserve on; absent: any node.",
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels of the nodes to reserve on; absent: any node."
    )
    count: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="How many times `resources` is reserved, each on one node.",
    )
    resources: dict[str, Quantity] = Field(
        default_factory=dict,
        description="Resource name to quantity. Without it, whole nodes are reserved.",
    )
    from_: Time | None = Field(
        default=None, alias="from", description="RFC 3339 time with a zone; absent: immediately."
    )
    until: Time = Field(description="RFC 3339 time with a zone, at which the reservation ends.")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        own = (self.nodes, self.node_selector, self.count, self.resources, self.from_)
        if self.pod_group is not None and any(own):
            raise ValueError(
                "podGroup stands beside nodes, nodeSelector, count, resources or from;"
                " it takes tenant and until alone"
            )
        if self.pod_group is None and self.tenant is None:
            raise ValueError("no tenant is named; name the tenant whose pods may use the capacity")
        return self

    @model_validator(mode="after")
    def _names_what_is_reserved(self) -> Self:
        if self.pod_group is not None:
            return self
        if self.count is not None and not self.resources:
            raise ValueError("count without resources; name the resources to reserve")
        if not (self.nodes or self.node_selector or self.resources):
            raise ValueError("found nothing to reserve; want nodes, nodeSelector or resources")
        return self

    @model_validator(mode="after")
    def _resources_are_known(self) -> Self:
        requested = self.resources if self.pod_group is None else self.pod_group.resources
        for name, amount in requested.items():
            if (problem := resource_name_fault(name)) is not None:
                raise ValueError(problem)
            if quantity.parse(amount) <= 0 and self.pod_group is None:
                raise ValueError(f"{name}: found {amount!r}, want more than zero")
            counted = quantity.amount(name, amount)
            if counted != bounds.QUANTITY.clamp(counted):
                raise ValueError(f"{name}: {bounds.QUANTITY.too_large(str(amount))}")
        return self

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.from_ is not None and self.until <= self.from_:
            raise ValueError(
                f"until {timestamp(self.until)} is not after from {timestamp(self.from_)};"
                " give a later one"
            )
        return self


class ResourceReservation(BaseModel):
    """Capacity reserved for pods that do not exist yet."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    spec: Spec
