"""
JSON Schemas of the documents that people write: for editors, and in `docs/schemas`.
"""

from typing import Any, Final

from policies import vocabulary
from policies.documents.policy import PlatformPolicy, TenantPolicy
from policies.documents.policy_test import PolicyTest
from policies.documents.reservation import ResourceReservation

Schema = dict[str, Any]

_DRAFT: Final = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def schemas() -> dict[str, Schema]:
    """Kind of policy document to JSON Schema (draft 2020-12)."""
    return {
        model.__name__: {**_DRAFT, **model.model_json_schema(by_alias=True, mode="validation")}
        for model in (PlatformPolicy, TenantPolicy, PolicyTest)
    }


def reservations() -> dict[str, Schema]:
    """The same of reservations, whose model reads the spec alone."""
    kind = ResourceReservation.__name__
    made = ResourceReservation.model_json_schema(by_alias=True, mode="validation")
    about = {
        "apiVersion": {"const": vocabulary.API_VERSION, "description": "API version."},
        "kind": {"const": kind, "description": "Kind."},
        "metadata": {"type": "object", "description": "Name, namespace and labels."},
    }
    made["properties"] = {**about, **made["properties"]}
    made["required"] = [*about, *made["required"]]
    return {kind: {**_DRAFT, **made}}


def documents() -> dict[str, Schema]:
    """All of them."""
    return {**schemas(), **reservations()}
