"""
The policy documents as their authors write them: PlatformPolicy and TenantPolicy.

Field names and meanings are those of Kubernetes' ValidatingAdmissionPolicy wherever it has the
concept. These classes accept or reject one document at a time; `policies.engine.consistency`
compares documents, and `faults` words the messages.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from policies import bounds, quantity, vocabulary
from policies.documents.rules import (
    LABEL_VALUE,
    Duration,
    HardwareTier,
    LabelKey,
    Many,
    Name,
    NumaPolicy,
    Part,
    Quantity,
    RuleName,
    Rules,
    Tier,
)
from policies.documents.tenancy import Backfill, Quota, Sharing

MAX_GANG_SIZE: Final = bounds.GANG_SIZE.largest


class Metadata(BaseModel):
    """The part of Kubernetes' ObjectMeta that policies use; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, strict=True)

    name: Name = Field(description="Name of the document; unique among all policies.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels, for people.")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Annotations, for people and tools."
    )
    generation: int = Field(default=0, description="Counted by the API server.")


class Hardware(Part):
    """Hardware tiers that a tier of tenants may use."""

    allowed: Many[HardwareTier] = Field(
        default=vocabulary.HARDWARE_TIERS, min_length=1, description="May be used."
    )
    preferred: Many[HardwareTier] = Field(
        default=(), description="Best first; the first is the default of GPU pods."
    )

    @model_validator(mode="after")
    def _preferred_is_allowed(self) -> Self:
        extra = [tier for tier in self.preferred if tier not in self.allowed]
        if extra:
            raise ValueError(f"preferred has {extra[0]!r}, which allowed lacks; add it there")
        return self


class TierSpec(Part):
    """A class of tenants."""

    name: Tier = Field(description="Name, as in the label tenant.kubenexus.io/tier.")
    rank: int = Field(
        ge=0, le=1_000_000, description="The higher rank comes first; unique among tiers."
    )
    weight: int = Field(
        default=1, ge=1, le=1_000_000, description="Share of what is left over, by weight."
    )
    priority_boost: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Added to a pod's priority in its tenant's queue; it causes no preemption.",
    )
    hardware_tiers: Hardware = Field(
        default_factory=Hardware, description="Hardware allowed and preferred."
    )


class PriorityClassTier(Part):
    """The tier of a PriorityClass, where no other source gives one."""

    name: Name = Field(description="Name of the PriorityClass, compared exactly.")
    tier: Tier = Field(description="Tier of its pods.")


class GpuModel(Part):
    """One kind of GPU under every name that its nodes are labelled with."""

    models: Many[str] = Field(
        min_length=1, description="Names, compared exactly, as in node labels."
    )
    tier: HardwareTier = Field(description="Hardware tier of nodes with this GPU.")
    vram: Quantity = Field(description="Memory of one GPU.")
    high_end: bool = Field(default=False, description="Kept free for workloads that need it.")

    @model_validator(mode="after")
    def _vram_is_bounded(self) -> Self:
        size = quantity.units(self.vram)
        if size != bounds.QUANTITY.clamp(size):
            raise ValueError(f"vram: {bounds.QUANTITY.too_large(str(self.vram))}")
        return self


class TopologyLevel(Part):
    """One topology level, such as a zone or a rack."""

    name: RuleName = Field(description="Name of the level.")
    labels: Many[LabelKey] = Field(
        min_length=1, description="Node labels that hold it, the preferred one first."
    )


class GangBound(Part):
    """The largest gang of any tenant."""

    max_size: int = Field(
        default=bounds.DEFAULT_GANG_SIZE,
        ge=1,
        le=MAX_GANG_SIZE,
        description="Largest min-available, and most pods of a workload that is one gang.",
    )


class PlatformSpec(Rules):
    """Rules for every tenant, and the tables that they use."""

    tiers: Many[TierSpec] = Field(default=(), description="Classes of tenants.")
    priority_classes: Many[PriorityClassTier] = Field(
        default=(), description="Tiers of pods whose namespace names none."
    )
    hardware: Many[GpuModel] = Field(
        default=(), description="GPU models with their tier and memory."
    )
    topology_levels: Many[TopologyLevel] = Field(
        default=(), description="Topology levels, widest first."
    )
    sharing: Sharing | None = Field(
        default=None, description="How tenants share capacity; one platform policy sets it."
    )
    backfill: Backfill | None = Field(
        default=None, description="Backfill; one platform policy sets it."
    )
    gang: GangBound | None = Field(
        default=None,
        description="The largest gang; one platform policy sets it. Absent:"
        f" {bounds.DEFAULT_GANG_SIZE}.",
    )


class Tenant(Part):
    """The tenant of the policy."""

    name: Annotated[str, StringConstraints(pattern=LABEL_VALUE, min_length=1)] = Field(
        description="Name, as in the label tenant.kubenexus.io/name."
    )
    tier: Tier | None = Field(
        default=None, description="Tier; absent: the namespace label decides."
    )


class GangLimits(Part):
    """Limits for pod groups."""

    max_size: int | None = Field(
        default=None, ge=1, le=MAX_GANG_SIZE, description="Largest min-available."
    )
    min_size: int | None = Field(
        default=None, ge=1, le=MAX_GANG_SIZE, description="Smallest min-available."
    )
    timeout: Duration | None = Field(
        default=None,
        description="How long a gang waits for missing members, where its pods set no timeout.",
    )
    gate: bool = Field(
        default=False, description="Hold members with a scheduling gate until the gang is complete."
    )

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        low, high = self.min_size, self.max_size
        if low is not None and high is not None and low > high:
            raise ValueError(f"minSize {low} is above maxSize {high}")
        return self


class NumaLimits(Part):
    """The NUMA policies that a tenant's pods may request."""

    allowed: Many[NumaPolicy] = Field(
        default=vocabulary.NUMA_POLICIES, min_length=1, description="May be requested."
    )
    default: NumaPolicy | None = Field(default=None, description="Set on pods that request none.")

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.default is not None and self.default not in self.allowed:
            raise ValueError(f"default {self.default!r} is not among allowed")
        return self


class TenantSpec(Rules):
    """Rules for one tenant."""

    tenant: Tenant = Field(description="The tenant of the policy.")
    params: dict[str, Any] | None = Field(
        default=None,
        description="Values that expressions see as `params`, those of platform policies too.",
    )
    gang: GangLimits = Field(default_factory=GangLimits, description="Limits for pod groups.")
    numa: NumaLimits = Field(default_factory=NumaLimits, description="Limits for NUMA policies.")
    quota: Quota = Field(default_factory=Quota, description="Guaranteed and max amounts.")

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self.namespace_selector is not None and self.namespace_selector.is_empty:
            raise ValueError(
                "namespaceSelector is empty and would claim every namespace; name labels, or leave"
                f" it out to select {vocabulary.TENANT_LABEL}={self.tenant.name}"
            )
        return self


class PlatformPolicy(Part):
    """A policy of the cluster admins for all tenants; no tenant can weaken it."""

    api_version: Literal["policy.kubenexus.io/v1alpha1"] = Field(description="API version.")
    kind: Literal["PlatformPolicy"] = Field(description="Kind.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: PlatformSpec = Field(description="Tables and rules.")


class TenantPolicy(Part):
    """A policy of the cluster admins for one tenant."""

    api_version: Literal["policy.kubenexus.io/v1alpha1"] = Field(description="API version.")
    kind: Literal["TenantPolicy"] = Field(description="Kind.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: TenantSpec = Field(description="The tenant, its limits and its rules.")


Policy = PlatformPolicy | TenantPolicy
