"""
CustomResourceDefinitions of the policy kinds, made from the same models that files are read with.

The API server takes structural schemas only: no references, no alternatives between types, no
patterns for keys. What such a schema cannot say is left open there and judged by the models when
the policy is loaded; the object's `status.conditions` tell the outcome.
"""

from collections.abc import Mapping
from typing import Any, Final

from policies import vocabulary
from policies.model import ClusterPolicy, TenantPolicy

Json = dict[str, Any]

# Kept as they are; the rest of JSON Schema is translated or has no counterpart.
_KEPT: Final = frozenset(
    {
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "type",
    }
)
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_CONDITIONS: Final[Json] = {
    "type": "array",
    "description": "Compiled: the expressions are sound. Ready: the policy is in force.",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
        },
    },
}
_STATUS: Final[Json] = {
    "type": "object",
    "properties": {
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "conditions": _CONDITIONS,
    },
}
_READY: Final = {
    "name": "Ready",
    "type": "string",
    "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
}
_AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_TENANT_COLUMNS: Final = [
    {"name": "Tenant", "type": "string", "jsonPath": ".spec.tenant.name"},
    {"name": "Tier", "type": "string", "jsonPath": ".spec.tenant.tier"},
]


def definitions() -> list[Json]:
    """Both CustomResourceDefinitions."""
    return [
        _definition(ClusterPolicy, "clusterpolicies", "knxcp", []),
        _definition(TenantPolicy, "tenantpolicies", "knxtp", _TENANT_COLUMNS),
    ]


def _definition(
    model: type[ClusterPolicy] | type[TenantPolicy], plural: str, short: str, columns: list[Json]
) -> Json:
    kind = model.__name__
    schema = model.model_json_schema(by_alias=True, mode="validation")
    spec = structural(schema["properties"]["spec"], schema["$defs"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{vocabulary.POLICY_GROUP}",
            "labels": {"app.kubernetes.io/name": "kubenexus"},
        },
        "spec": {
            "group": vocabulary.POLICY_GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["kubenexus"],
            },
            "versions": [
                {
                    "name": vocabulary.POLICY_API_VERSION.rpartition("/")[2],
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [*columns, _READY, _AGE],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": str(schema.get("description", "")),
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": _STATUS,
                            },
                        }
                    },
                }
            ],
        },
    }


def structural(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Json:
    """A JSON Schema as the API server takes it; `known` are the definitions it refers to."""
    if "$ref" in schema:
        target = known[str(schema["$ref"]).rpartition("/")[2]]
        return structural({**target, **{k: v for k, v in schema.items() if k != "$ref"}}, known)
    if "anyOf" in schema:
        return _any_of(schema, known)
    made = {key: value for key, value in schema.items() if key in _KEPT}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    if "properties" in schema:
        made["properties"] = {
            name: structural(part, known) for name, part in schema["properties"].items()
        }
    if "items" in schema:
        made["items"] = structural(schema["items"], known)
    values = _values(schema)
    if values is True:
        made[_OPEN] = True
    elif values is not None:
        made["additionalProperties"] = structural(values, known)
    if "type" not in made:
        made[_OPEN] = True
    return made


def _values(schema: Mapping[str, Any]) -> Any:
    """What the values of a map are: a schema, True for anything, None for named fields alone."""
    if "patternProperties" in schema:
        return next(iter(schema["patternProperties"].values()))
    return schema.get("additionalProperties") or None


def _any_of(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Json:
    """One alternative besides null is that one; several of different types are left open."""
    parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
    described = {"description": schema["description"]} if "description" in schema else {}
    if len(parts) == 1:
        return structural({**parts[0], **described}, known)
    return {_OPEN: True, **described}
