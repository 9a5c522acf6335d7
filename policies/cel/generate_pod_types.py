"""
Writes `pod_schema.json`: the fields of a Pod and their types, from Kubernetes' own OpenAPI
document.

    python -m policies.cel.generate_pod_types api__v1_openapi.json v1.37.1 > pod_schema.json

The document is `api/openapi-spec/v3/api__v1_openapi.json` of the Kubernetes source, or the response
of an API server at `/openapi/v3/api/v1`. Types are those of the JSON that admission sees: a time is
a string, and a quantity or a port that may be a number or a string is `dyn`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

ROOT: Final = "io.k8s.api.core.v1.Pod"
_SCALARS: Final = {"string": "string", "boolean": "bool", "integer": "int", "number": "double"}


def fields(document: Mapping[str, Any], root: str = ROOT) -> dict[str, dict[str, str]]:
    """Type name -> field -> type, for everything a Pod reaches, in name order."""
    schemas = document["components"]["schemas"]
    fields_by_type: dict[str, dict[str, str]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if _short(name) in fields_by_type:
            continue
        types: dict[str, str] = {}
        for field, schema in schemas[name]["properties"].items():
            types[field], reached = _type(schema, schemas)
            waiting += reached
        fields_by_type[_short(name)] = dict(sorted(types.items()))
    return dict(sorted(fields_by_type.items()))


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[str, list[str]]:
    reference = schema.get("$ref") or next(
        (part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), None
    )
    if reference:
        name = reference.rpartition("/")[2]
        if "properties" in schemas[name]:
            return _short(name), [name]
        return _type(schemas[name], schemas)
    kind = schema.get("type")
    if kind == "array":
        inner, reached = _type(schema["items"], schemas)
        return f"list<{inner}>", reached
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        inner, reached = _type(schema["additionalProperties"], schemas)
        return f"map<string,{inner}>", reached
    if schema.get("format") == "int-or-string" or kind not in _SCALARS:
        return "dyn", []
    return _SCALARS[kind], []


def main(arguments: list[str]) -> int:
    """Print the schema as JSON, one type per line."""
    with open(arguments[0], encoding="utf-8") as file:
        types = fields(json.load(file))
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in types.items())
    print(f'{{"kubernetes": {json.dumps(arguments[1])}, "types": {{\n{lines}\n}}}}')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
