"""
Checks the structure of the fields that the webhook writes to: maps are maps, lists are lists.

The API server sends typed objects, so their structure holds. Other clients may send anything: a
field that is present and of the wrong type is named, and the review is denied. Policies decide on
the values, and on all fields that are not in the table.
"""

from typing import Any, Final

# A map lists the shapes of its fields; a list holds the shape of its items, if they have one.
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
    """The first field of a wrong type and its expected type; None: the structure holds."""
    shape = _POD if kind == "Pod" else _OBJECT
    return None if _holds(obj, shape) else _fault(obj, shape, "")


def _holds(value: Any, shape: Any) -> bool:
    """Whether `_fault` finds nothing; faster, because it builds no paths."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return value is None
        for key, part in shape.items():
            field = value.get(key)
            if field is not None and not _holds(field, part):
                return False
        return True
    if not isinstance(value, list):
        return value is None
    return not shape or all(_holds(item, shape[0]) for item in value)


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
    faults = (_fault(*part) for part in parts)
    return next((line for line in faults if line is not None), None)
