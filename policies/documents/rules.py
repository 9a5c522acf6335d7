"""
The parts of a policy that both kinds share: what it matches, and its rules.

Unknown fields are rejected, and every part is frozen. Descriptions become the JSON Schemas and the
reference. `policy` holds the documents, `policies.engine.compiled` the compiled expressions.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from policies import bounds, duration, quantity

T = TypeVar("T")
Many = Annotated[tuple[T, ...], Strict(False)]  # a list in the document, a tuple in the model

Action = Literal["Deny", "Warn", "Audit"]
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
Reason = Literal["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"]
Tier = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
HardwareTier = Literal["premium", "standard", "economy"]
WorkloadType = Literal["training", "inference", "batch", "service", "interactive"]
NumaPolicy = Literal["none", "best-effort", "restricted", "single-numa", "isolated"]

_DNS: Final = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
_RULE: Final = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
_LABEL_KEY: Final = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
)

Name = Annotated[str, StringConstraints(pattern=_DNS)]
RuleName = Annotated[str, StringConstraints(pattern=_RULE)]
LabelKey = Annotated[str, StringConstraints(pattern=_LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE)]
Cel = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


def _quantity(value: str | int | float) -> str | int | float:
    if isinstance(value, str) and not bounds.QUANTITY.holds(value):
        raise ValueError(bounds.QUANTITY.too_long(value))
    if quantity.parse(value) < 0:
        raise ValueError(f"found {value!r}, want zero or more")
    return value


def _duration(value: str) -> str:
    if not bounds.DURATION.holds(value):
        raise ValueError(bounds.DURATION.too_long(value))
    seconds = duration.parse(value)
    if seconds != bounds.DURATION.clamp(seconds):
        raise ValueError(bounds.DURATION.too_large(value))
    return value


def _time(value: datetime) -> datetime:
    """A time at the edge of the calendar has no equivalent in other zones."""
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError("found a time outside the years 1 to 9999 in UTC") from None
    return value


Quantity = Annotated[str | int | float, AfterValidator(_quantity)]
"""An amount of any size, such as that of a whole cluster."""
Duration = Annotated[
    str, AfterValidator(_duration), Field(json_schema_extra={"maxLength": bounds.DURATION.longest})
]
Time = Annotated[AwareDatetime, Strict(False), AfterValidator(_time)]


class Part(BaseModel):
    """What every part of a document has in common: camelCase, frozen, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=False, strict=True
    )


class SelectorTerm(Part):
    """One condition on a label."""

    key: LabelKey = Field(description="Label key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared."
    )
    values: Many[LabelValue] = Field(
        default=(), description="Values for In and NotIn; empty for the others."
    )

    @model_validator(mode="after")
    def _values_suit(self) -> Self:
        wants = self.operator in ("In", "NotIn")
        if wants != bool(self.values):
            need = "at least one value" if wants else "no values"
            raise ValueError(f"operator {self.operator} takes {need}")
        return self


class Selector(Part):
    """A Kubernetes label selector; all its conditions must hold."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels that must have exactly these values."
    )
    match_expressions: Many[SelectorTerm] = Field(default=(), description="Conditions on labels.")

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions


KindName = Annotated[
    str, StringConstraints(pattern=r"^(\*|([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*)$")
]


class MatchConstraints(Part):
    """The requests that a policy evaluates."""

    kinds: Many[KindName] = Field(
        default=("Pod",),
        min_length=1,
        description="`Kind` of any API group, `group/Kind`, or `*`. A policy for Pods also checks"
        " the pod templates of workloads, and warns there.",
    )
    operations: Many[Operation] = Field(
        default=("CREATE", "UPDATE"),
        min_length=1,
        description="Operations that the policy evaluates.",
    )


class MatchCondition(Part):
    """A condition for the whole policy."""

    name: RuleName = Field(description="Name, for messages.")
    expression: Cel = Field(
        description="CEL, true or false. One false condition skips the policy, even where"
        " another one fails to evaluate."
    )


class Variable(Part):
    """A named value for the expressions below it."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="Read as `variables.<name>`."
    )
    expression: Cel = Field(
        description="CEL; evaluated at most once per request, and only when an expression reads it."
        " May read variables that stand above it."
    )


class TypeRule(Part):
    """A rule for the workload type of pods."""

    when: Cel = Field(description="CEL, true or false.")
    value: WorkloadType = Field(description="The workload type where `when` is true.")


class HardwareRule(Part):
    """A rule for the hardware tier of pods."""

    when: Cel = Field(description="CEL, true or false.")
    value: HardwareTier = Field(description="The hardware tier where `when` is true.")


class Classify(Part):
    """Classification of pods; the first rule that is true wins."""

    workload_type: Many[TypeRule] = Field(default=(), description="Workload type of pods.")
    hardware_tier: Many[HardwareRule] = Field(default=(), description="Hardware tier of pods.")


class Expression(Part):
    """A value that is computed."""

    expression: Cel = Field(description="CEL that gives the value; null sets nothing.")


Text = str | Expression


class Resources(Part):
    """Requests and limits for every container that has none of its own."""

    requests: dict[str, Quantity | Expression] = Field(
        default_factory=dict, description="Resource name to quantity."
    )
    limits: dict[str, Quantity | Expression] = Field(
        default_factory=dict, description="Resource name to quantity."
    )


class Toleration(Part):
    """A Kubernetes toleration."""

    key: str | None = Field(default=None, description="Taint key; absent for every key.")
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(
        default=None, description="How the value is compared; Equal by default."
    )
    value: str | None = Field(default=None, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect; absent for every effect."
    )
    toleration_seconds: int | None = Field(
        default=None, description="How long a NoExecute taint is tolerated."
    )


class Affinity(Part):
    """A Kubernetes affinity."""

    node_affinity: dict[str, Any] | None = Field(default=None, description="To nodes.")
    pod_affinity: dict[str, Any] | None = Field(default=None, description="To other pods.")
    pod_anti_affinity: dict[str, Any] | None = Field(default=None, description="Away from pods.")


class Settings(Part):
    """Pod fields to fill in. A text may be `{expression: CEL}` instead."""

    scheduler_name: Text | None = Field(
        default=None, description="Set where it is absent or `default-scheduler`."
    )
    labels: dict[LabelKey, Text] = Field(default_factory=dict, description="Labels, key by key.")
    annotations: dict[LabelKey, Text] = Field(
        default_factory=dict, description="Annotations, key by key."
    )
    node_selector: dict[LabelKey, Text] = Field(
        default_factory=dict, description="Node labels, key by key."
    )
    tolerations: Many[Toleration] = Field(default=(), description="Added to the pod's own.")
    affinity: Affinity | Expression | None = Field(
        default=None, description="A Kubernetes affinity; set only where the pod has none."
    )
    priority_class_name: Text | None = Field(default=None, description="PriorityClass.")
    runtime_class_name: Text | None = Field(default=None, description="RuntimeClass.")
    scheduling_gates: Many[LabelKey] = Field(
        default=(), description="Gates, added to the pod's own at its creation."
    )
    resources: Resources | None = Field(
        default=None, description="Requests and limits of containers."
    )


class Default(Part):
    """Fields to fill in where the user left them out."""

    when: Cel | None = Field(default=None, description="CEL, true or false; absent for always.")
    set: Settings = Field(description="The fields and their values.")
    override: bool = Field(
        default=False, description="Replace what the user wrote. Items are still added to lists."
    )


class Validation(Part):
    """A rule that a request must satisfy."""

    name: RuleName = Field(description="Name, for messages and exceptions.")
    expression: Cel = Field(description="CEL; anything but true is a failure of the rule.")
    message: str | None = Field(default=None, max_length=5120, description="Message for the user.")
    message_expression: Cel | None = Field(
        default=None,
        description="CEL that gives the message; where it fails or gives no single line,"
        " `message` is used.",
    )
    reason: Reason = Field(default="Invalid", description="Machine-readable reason of a denial.")
    action: Action | Many[Action] = Field(
        default="Deny",
        description="What a failure does; Deny and Warn exclude each other.",
    )

    @property
    def actions(self) -> tuple[Action, ...]:
        return (self.action,) if isinstance(self.action, str) else self.action

    @model_validator(mode="after")
    def _one_voice(self) -> Self:
        if not self.actions or len(set(self.actions)) != len(self.actions):
            raise ValueError("action takes one or several different ones of Deny, Warn, Audit")
        if {"Deny", "Warn"} <= set(self.actions):
            raise ValueError("Deny and Warn exclude each other: a refusal says everything already")
        return self


class Exemption(Part):
    """Requests that need not satisfy this policy's validations, until when and why."""

    name: RuleName = Field(description="Name, for messages and audit.")
    when: Cel = Field(description="CEL, true or false; where it fails, nothing is excepted.")
    until: Time | None = Field(
        default=None,
        description="RFC 3339 time with a zone, from which the exception is ignored.",
    )
    reason: str = Field(min_length=1, description="Why; written to the audit log.")
    validations: Many[RuleName] = Field(
        default=(), description="Names of the excepted validations; empty for all."
    )

    def expired(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


class Rules(Part):
    """What both kinds of policy have."""

    namespace_selector: Selector | None = Field(
        default=None, description="Namespaces that the policy is for."
    )
    match_constraints: MatchConstraints = Field(
        default_factory=MatchConstraints, description="Requests that the policy is for."
    )
    match_conditions: Many[MatchCondition] = Field(
        default=(), max_length=64, description="Conditions for the whole policy."
    )
    variables: Many[Variable] = Field(
        default=(), description="Named values, in the order of their use."
    )
    classify: Classify = Field(default_factory=Classify, description="Classification of pods.")
    defaults: Many[Default] = Field(
        default=(), description="Fields to fill in; the first that sets one wins."
    )
    validations: Many[Validation] = Field(
        default=(), description="Rules; all are evaluated and all failures reported."
    )
    exceptions: Many[Exemption] = Field(
        default=(), description="Exceptions from this policy's own validations."
    )
    failure_policy: Literal["Fail", "Ignore"] = Field(
        default="Fail",
        description="What an expression without a value means: Fail counts it as a failure of its"
        " rule, Ignore skips the rule and writes that to the audit log.",
    )
