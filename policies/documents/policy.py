"""
The policy documents as their authors write them: PlatformPolicy and TenantPolicy.

Field names and meanings are those of Kubernetes' ValidatingAdmissionPolicy wherever it has the
concept. These classes say what may be written, one document at a time; what two documents say
together is `policyset`'s business, and messages for authors are `faults`'.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from policies import vocabulary
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


class Metadata(BaseModel):
    """The part of Kubernetes' ObjectMeta that matters; what the API server adds is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, strict=True)

    name: Name = Field(description="Name of the document; unique among all policies.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels, for people.")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Annotations, for people and tools."
    )
    generation: int = Field(default=0, description="Counted by the API server.")


class Hardware(Part):
    """Tiers of hardware that a tier of tenants may use."""

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
    rank: int = Field(ge=0, description="Higher goes first; no two tiers share one.")
    weight: int = Field(default=1, ge=1, description="Share of what is left over, by weight.")
    priority_boost: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Added to a pod's priority in its tenant's queue; nobody is evicted for it.",
    )
    hardware_tiers: Hardware = Field(
        default_factory=Hardware, description="Hardware allowed and preferred."
    )


class PriorityClassTier(Part):
    """The tier that a PriorityClass speaks for where nothing else names one."""

    name: Name = Field(description="Name of the PriorityClass, compared exactly.")
    tier: Tier = Field(description="Tier of its pods.")


class GpuModel(Part):
    """One kind of GPU under every name that its nodes are labelled with."""

    models: Many[str] = Field(
        min_length=1, description="Names, compared exactly, as in node labels."
    )
    tier: HardwareTier = Field(description="Hardware tier of nodes with this GPU.")
    vram: Quantity = Field(description="Memory of one GPU.")
    high_end: bool = Field(default=False, description="Kept free for work that needs it.")


class TopologyLevel(Part):
    """One level at which nodes are near each other."""

    name: RuleName = Field(description="Name of the level.")
    labels: Many[LabelKey] = Field(
        min_length=1, description="Node labels that tell it, the best first."
    )


class ClusterSpec(Rules):
    """Rules for every tenant, and the tables that they rest on."""

    tiers: Many[TierSpec] = Field(default=(), description="Classes of tenants.")
    priority_classes: Many[PriorityClassTier] = Field(
        default=(), description="Tiers of pods whose namespace names none."
    )
    hardware: Many[GpuModel] = Field(
        default=(), description="GPU models with their tier and memory."
    )
    topology_levels: Many[TopologyLevel] = Field(
        default=(), description="Levels of nearness, widest first."
    )
    sharing: Sharing | None = Field(
        default=None, description="How tenants share; said by one platform policy."
    )
    backfill: Backfill | None = Field(
        default=None, description="What may go ahead of others; said by one platform policy."
    )


class Tenant(Part):
    """Who the policy is for."""

    name: Annotated[str, StringConstraints(pattern=LABEL_VALUE, min_length=1)] = Field(
        description="Name, as in the label tenant.kubenexus.io/name."
    )
    tier: Tier | None = Field(
        default=None, description="Tier; absent for what the namespace label says."
    )


class GangLimits(Part):
    """Limits for pod groups."""

    max_size: int | None = Field(default=None, ge=1, description="Largest min-available.")
    min_size: int | None = Field(default=None, ge=1, description="Smallest min-available.")
    timeout: Duration | None = Field(
        default=None, description="How long a plan waits for missing members, where unsaid."
    )
    gate: bool = Field(
        default=False, description="Hold members with a scheduling gate until the gang is whole."
    )

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        low, high = self.min_size, self.max_size
        if low is not None and high is not None and low > high:
            raise ValueError(f"minSize {low} is above maxSize {high}")
        return self


class NumaLimits(Part):
    """Which NUMA policies a tenant's pods may ask for."""

    allowed: Many[NumaPolicy] = Field(
        default=vocabulary.NUMA_POLICIES, min_length=1, description="May be asked."
    )
    default: NumaPolicy | None = Field(default=None, description="Set on pods that ask for none.")

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.default is not None and self.default not in self.allowed:
            raise ValueError(f"default {self.default!r} is not among allowed")
        return self


class TenantSpec(Rules):
    """Rules for one tenant."""

    tenant: Tenant = Field(description="Who the policy is for.")
    params: dict[str, Any] | None = Field(
        default=None,
        description="Values that expressions see as `params`, those of platform policies too.",
    )
    gang: GangLimits = Field(default_factory=GangLimits, description="Limits for pod groups.")
    numa: NumaLimits = Field(default_factory=NumaLimits, description="Limits for NUMA policies.")
    quota: Quota = Field(default_factory=Quota, description="Promised and largest amounts.")

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self.namespace_selector is not None and self.namespace_selector.is_empty:
            raise ValueError(
                "namespaceSelector is empty and would claim every namespace; name labels, or leave"
                f" it out to select {vocabulary.TENANT_LABEL}={self.tenant.name}"
            )
        return self


class PlatformPolicy(Part):
    """A policy of the cluster's admins for everybody; no tenant can weaken it."""

    api_version: Literal["policy.kubenexus.io/v1alpha1"] = Field(description="API version.")
    kind: Literal["PlatformPolicy"] = Field(description="Kind.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: ClusterSpec = Field(description="Tables and rules.")


class TenantPolicy(Part):
    """A policy of the cluster's admins for one tenant."""

    api_version: Literal["policy.kubenexus.io/v1alpha1"] = Field(description="API version.")
    kind: Literal["TenantPolicy"] = Field(description="Kind.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: TenantSpec = Field(description="Who the tenant is, and its rules.")


Policy = PlatformPolicy | TenantPolicy
