"""Builders of policy documents and requests: only what a situation is about has to be said."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from policies.cel.engine_cpp import CppEngine
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from policies.engine.result import Evaluation
from tests.builders import a_pod

Json = dict[str, Any]

API_VERSION = "policy.kubenexus.io/v1alpha1"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@lru_cache(maxsize=1)
def a_compiler() -> Compiler:
    """One for all tests: a remembered program equals one that it compiles anew."""
    return Compiler(CppEngine())


def a_platform_policy(name: str = "base", **spec: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_tenant_policy(
    name: str = "team-a", *, tenant: str = "a", tier: str | None = None, **spec: Any
) -> Json:
    who = {"name": tenant} if tier is None else {"name": tenant, "tier": tier}
    return {
        "apiVersion": API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": name},
        "spec": {"tenant": who, **spec},
    }


def a_rule(expression: str, name: str = "rule", **more: Any) -> Json:
    return {"name": name, "expression": expression, **more}


def a_namespace(name: str = "team-a", **labels: str) -> Json:
    """Labels by short names: tenant, tier, or a whole key in a `**` map."""
    short = {"tenant": "tenant.kubenexus.io/name", "tier": "tenant.kubenexus.io/tier"}
    own = {short.get(key, key): value for key, value in labels.items()}
    return {"metadata": {"name": name, "labels": own}}


def loaded(*documents: Mapping[str, Any]) -> PolicySet:
    result = loader.compile_all(loader.read_objects(documents), compiler=a_compiler())
    assert result.problems == ()
    return result.policies


def evaluated(
    *documents: Mapping[str, Any],
    obj: Mapping[str, Any] | None = None,
    namespace: Mapping[str, Any] | None = None,
    now: datetime = NOW,
    inject: bool = True,
    **request: Any,
) -> Evaluation:
    """What the documents make of an object in the namespace of tenant a."""
    where = a_namespace(tenant="a") if namespace is None else namespace
    admission = AdmissionRequest.of(a_pod() if obj is None else obj, namespace=where, **request)
    return evaluate(admission, loaded(*documents), now=now, inject=inject)
