"""
CustomResourceDefinitions of the product's kinds, made from the models that objects are read with.

The API server takes structural schemas only: no references, no alternatives between types, no
patterns for keys. What such a schema cannot express is left open there; the models check it when
the policy is loaded; the object's `status.conditions` tell the outcome.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from policies import vocabulary
from policies.documents.policy import PlatformPolicy, TenantPolicy
from policies.documents.reservation import ResourceReservation
from policies.json_fields import JsonDict

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
_CONDITIONS: Final[JsonDict] = {
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
_STATUS: Final[JsonDict] = {
    "type": "object",
    "properties": {
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "conditions": _CONDITIONS,
    },
}
_SHARE: Final[JsonDict] = {
    "share": {
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)?$",
        "description": "The largest part of any resource of the cluster, as remembered: it fades.",
    },
    "at": {"type": "string", "format": "date-time", "description": "When it was reckoned."},
}
_USAGE: Final[JsonDict] = {
    "usage": {
        "type": "object",
        "description": "What the tenant uses; written by the scheduler.",
        "properties": {
            "used": {
                "type": "object",
                "description": "Resource name to the amount in use, under the names of quotas.",
                "additionalProperties": {"type": "string"},
            },
            **_SHARE,
        },
    }
}
_SHARES: Final[JsonDict] = {
    "shares": {
        "type": "array",
        "description": "What groups, and tenants without a TenantPolicy object, have used.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, **_SHARE},
        },
    }
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
    {"name": "Guaranteed", "type": "string", "jsonPath": ".spec.quota.guaranteed"},
    {"name": "Max", "type": "string", "jsonPath": ".spec.quota.max"},
    {"name": "Used", "type": "string", "jsonPath": ".status.usage.used"},
    {"name": "Share", "type": "string", "jsonPath": ".status.usage.share"},
]


_PLACES: Final[JsonDict] = {
    "type": "array",
    "description": "Where capacity is reserved now.",
    "items": {
        "type": "object",
        "required": ["node"],
        "properties": {"node": {"type": "string"}, "assigned": {"type": "string"}},
    },
}
_RESERVATION_STATUS: Final[JsonDict] = {
    "type": "object",
    "properties": {
        "phase": {
            "type": "string",
            "enum": ["Pending", "Active", "Expired"],
            "description": "Pending: not begun yet. Active: in effect. Expired: ended.",
        },
        "held": {"type": "string", "description": "The reserved capacity, as a text."},
        "message": {
            "type": "string",
            "description": "What is missing, and the pods that it waits for.",
        },
        "places": _PLACES,
    },
}
_RESERVATION_COLUMNS: Final[list[JsonDict]] = [
    {"name": "Tenant", "type": "string", "jsonPath": ".spec.tenant"},
    {"name": "For", "type": "string", "jsonPath": ".spec.podGroup.name"},
    {"name": "Held", "type": "string", "jsonPath": ".status.held"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "From",
        "type": "string",
        "format": "date-time",
        "jsonPath": ".spec.from",
        "priority": 1,
    },
    {"name": "Until", "type": "string", "format": "date-time", "jsonPath": ".spec.until"},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
    _AGE,
]


def definitions() -> list[JsonDict]:
    """Every CustomResourceDefinition."""
    policy = vocabulary.POLICY_API_VERSION
    return [
        _definition(
            PlatformPolicy,
            policy,
            ("platformpolicies", "knxpp"),
            columns=[_READY, _AGE],
            status=_status(_SHARES),
        ),
        _definition(
            TenantPolicy,
            policy,
            ("tenantpolicies", "knxtp"),
            columns=[*_TENANT_COLUMNS, _READY, _AGE],
            status=_status(_USAGE),
        ),
        _definition(
            ResourceReservation,
            vocabulary.API_VERSION,
            ("resourcereservations", "knxrr"),
            columns=_RESERVATION_COLUMNS,
            status=_RESERVATION_STATUS,
            scope="Namespaced",
        ),
    ]


def _status(remembered: JsonDict) -> JsonDict:
    return {**_STATUS, "properties": {**_STATUS["properties"], **remembered}}


def _definition(
    model: type[BaseModel],
    api_version: str,
    names: tuple[str, str],
    *,
    columns: list[JsonDict],
    status: JsonDict,
    scope: str = "Cluster",
) -> JsonDict:
    """`names` are the plural and a short one."""
    kind = model.__name__
    (plural, short), (group, _, version) = names, api_version.partition("/")
    schema = model.model_json_schema(by_alias=True, mode="validation")
    spec = structural(schema["properties"]["spec"], schema["$defs"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "labels": {"app.kubernetes.io/name": "kubenexus"},
        },
        "spec": {
            "group": group,
            "scope": scope,
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
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
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
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def structural(schema: Mapping[str, Any], known: Mapping[str, Any]) -> JsonDict:
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


def _any_of(schema: Mapping[str, Any], known: Mapping[str, Any]) -> JsonDict:
    """One alternative besides null is that one; several of different types are left open."""
    parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
    described = {"description": schema["description"]} if "description" in schema else {}
    if len(parts) == 1:
        return structural({**parts[0], **described}, known)
    return {_OPEN: True, **described}
