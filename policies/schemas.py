"""
JSON Schemas of the policy documents, for editors and for the reference in `docs/schemas`.
"""

from typing import Any

from policies.model import ClusterPolicy, TenantPolicy
from policies.model_tests import PolicyTest


def schemas() -> dict[str, dict[str, Any]]:
    """Kind to JSON Schema (draft 2020-12)."""
    made: dict[str, dict[str, Any]] = {}
    for model in (ClusterPolicy, TenantPolicy, PolicyTest):
        schema = model.model_json_schema(by_alias=True, mode="validation")
        made[model.__name__] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **schema,
        }
    return made
