"""
Policies and reservations, field by field, from the JSON Schemas of the models that read them.

Each part that several fields share has one section; a field that holds one points to it.
"""

from collections.abc import Iterator, Mapping

from kubenexus.reference import markdown
from policies.documents import json_schemas
from policies.json_fields import Json


def page() -> str:
    return _page(
        "Policy documents",
        "Field by field; [Policies](../policies.md) is the guide. `kubenexus policy schema KIND`"
        " prints the JSON Schema for editors. Unknown fields are errors.",
        json_schemas.schemas(),
    )


def reservation_page() -> str:
    return _page(
        "Reservations",
        "Capacity reserved before its pods exist, field by field; [Tenancy](../tenancy.md)"
        " is the guide. `kubenexus policy schema ResourceReservation` prints the JSON Schema for"
        " editors. A reservation for a tenant has `tenant`, `until`, and nodes or amounts; only the"
        " scheduler writes `podGroup`.",
        json_schemas.reservations(),
    )


def _page(title: str, intro: str, documents: Mapping[str, Json]) -> str:
    parts: dict[str, Json] = {}  # name of a part -> its schema, in the order of first sight
    sections: list[str] = []
    for kind, schema in documents.items():
        sections += _section(kind, schema)
        parts |= {name: part for name, part in schema["$defs"].items() if name not in parts}
    for name in sorted(parts):
        sections += _section(name, parts[name])
    return markdown.page(title, intro, *sections)


def _section(name: str, schema: Json) -> Iterator[str]:
    if schema.get("type") != "object" or "properties" not in schema:
        return
    yield f"## {name}"
    yield str(schema.get("description", ""))
    required = set(schema.get("required", ()))
    yield markdown.table(
        ("Field", "Type", "Default", "Meaning"),
        (
            (
                markdown.code(field),
                _type(part),
                "required" if field in required else _default(part.get("default")),
                str(part.get("description", "")),
            )
            for field, part in schema["properties"].items()
        ),
    )


def _type(part: Json) -> str:
    """What may be written, in words; another part by a link to its section."""
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in part:
        return markdown.code(str(part["const"]))
    if "enum" in part:
        return markdown.codes(map(str, part["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in part:
            each = [_type(choice) for choice in part[key] if choice.get("type") != "null"]
            return " or ".join(dict.fromkeys(each))
    return _plain(part)


def _plain(part: Json) -> str:
    match part.get("type"):
        case "array":
            return f"list of {_type(part.get('items', {}))}"
        case "object":
            inner = part.get("additionalProperties")
            if inner is None and part.get("patternProperties"):
                inner = next(iter(part["patternProperties"].values()))
            return f"map to {_type(inner)}" if isinstance(inner, Mapping) and inner else "map"
        case None:
            return "any"
        case found:
            return {"string": "text", "boolean": "true or false"}.get(str(found), str(found))


def _default(value: object) -> str:
    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, bool):
        return markdown.code(str(value).lower())
    if isinstance(value, list):
        return markdown.codes(map(str, value))
    return markdown.code(str(value)) if not isinstance(value, dict) else ""
