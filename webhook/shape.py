"""
The shape of what the webhook writes to: maps that are maps and lists that are lists.

The API server sends typed objects in their shape. Whoever else asks may send anything; a part that
is neither missing nor null nor of its shape is named, and the review is not judged. What stands in
the parts, and all that is not in the table, is for policies to judge.
"""

from typing import Any, Final

# A map has a map of its parts, a list has a list with the shape of its items, if they have one.
_METADATA: Final[dict[str, Any]] = {"labels": {}, "annotations": {}, "ownerReferences": [{}]}
_CONTAINER: Final[dict[str, Any]] = {"resources": {"requests": {}, "limits": {}}}
_POD: Final[dict[str, Any]] = {
    "metadata": _METADATA,
    "spec": {
        "nodeSelector": {},
        "affinity": {},
        "tolerations": [],
        "schedulingGates": [{}],
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
    },
}
_OBJECT: Final[dict[str, Any]] = {"metadata": _METADATA}


def fault(obj: dict[str, Any], *, kind: str) -> str | None:
    """Where the object is not of its shape, and what was to be there; None where it is."""
    return _fault(obj, _POD if kind == "Pod" else _OBJECT, "")


def _fault(value: Any, shape: Any, path: str) -> str | None:
    if value is None:
        return None
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{path} is no map"
        parts = [(value.get(key), part, f"{path}.{key}") for key, part in shape.items()]
    else:
        if not isinstance(value, list):
            return f"{path} is no list"
        parts = [
            (item, part, f"{path}[{index}]") for part in shape for index, item in enumerate(value)
        ]
    found = (_fault(*part) for part in parts)
    return next((line for line in found if line is not None), None)
