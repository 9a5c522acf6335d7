"""
PolicyTest: the document with the results that an author expects of policies.

`policies.engine.policy_tests` compares the expectations.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from policies.documents.policy import Metadata
from policies.documents.rules import Many, Operation, Part, Time


class NamespaceOf(Part):
    """The namespace that a request is made in."""

    name: str = Field(default="default", description="Name.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class Classification(Part):
    """The expected classification of the request; absent fields are not compared."""

    tenant: str | None = Field(default=None, description="Tenant.")
    tier: str | None = Field(default=None, description="Tier of the tenant.")
    tier_source: str | None = Field(default=None, description="Where the tier comes from.")
    workload_type: str | None = Field(default=None, description="Workload type of the first pod.")
    hardware_tier: str | None = Field(
        default=None, description="Hardware tier of the first pod; empty text for none."
    )


class Expect(Part):
    """The expected result of a request. At least one expectation is required."""

    verdict: Literal["Allow", "Deny"] | None = Field(
        default=None, description="Whether the request is admitted."
    )
    messages: Many[str] | None = Field(
        default=None,
        description="Parts of the lines with which the request is denied: each is found in a"
        " line, and no line is without one.",
    )
    warnings: Many[str] | None = Field(
        default=None, description="The same for warnings; an empty list for none."
    )
    rules: dict[str, Literal["pass", "fail", "error"]] = Field(
        default_factory=dict,
        description="`policy/rule` to what it gives. A rule that was not evaluated fails the test.",
    )
    patch: dict[str, Any] | None = Field(
        default=None,
        description="Everything that policies write: path to value, and for lists path to the"
        " added items. An empty map for nothing.",
    )
    classification: Classification | None = Field(
        default=None, description="Tenant, tier, workload type and hardware tier."
    )
    policies: Many[str] | None = Field(
        default=None, description="Names of the policies that matched, in their order."
    )
    exceptions: Many[str] | None = Field(
        default=None, description="`policy/exception` of the exceptions that applied."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing is expected; want at least a verdict")
        return self


class Case(Part):
    """One request, and what is expected of it."""

    name: str = Field(min_length=1, description="What the case shows, in a sentence.")
    object: dict[str, Any] = Field(description="The object, as it would be applied.")
    old_object: dict[str, Any] | None = Field(
        default=None, description="The object before an UPDATE."
    )
    operation: Operation = Field(default="CREATE", description="What is done with the object.")
    namespace: NamespaceOf = Field(default_factory=NamespaceOf, description="Where it is done.")
    user: dict[str, Any] = Field(default_factory=dict, description="`request.userInfo`.")
    queue_tier: str | None = Field(default=None, description="Tier of the object's Kueue queue.")
    inject: bool = Field(
        default=True, description="Whether defaults are written, as the mutating webhook does."
    )
    expect: Expect = Field(description="What is expected.")


class TestSpec(Part):
    """The policies under test, and the cases."""

    __test__ = False  # its name must not make a test runner collect it

    policies: Many[str] = Field(
        default=(), description="Files or folders with the policies, from this file's folder on."
    )
    now: Time | None = Field(
        default=None, description="The time that exceptions' ends are compared with."
    )
    cases: Many[Case] = Field(min_length=1, description="The cases.")


class PolicyTest(Part):
    """Cases for policies, run by `kubenexus policy test`."""

    api_version: Literal["policy.kubenexus.io/v1alpha1"] = Field(description="API version.")
    kind: Literal["PolicyTest"] = Field(description="Kind.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: TestSpec = Field(description="The policies under test, and the cases.")
