"""
Whether an API server could decode an object, in the fields that the simulation reads.

A field that it could not decode is an error with the place in the file: a label that is no text, a
container that is no map, a malformed quantity. Admission validates everything else.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from policies.documents.yaml_reader import Document, DocumentError, Step
from policies.json_fields import Json
from policies.pods import requests, workloads

Path = tuple[Step, ...]

_TEXTS: Final = ("schedulerName", "nodeName", "priorityClassName", "restartPolicy")
_MAPS: Final = ("nodeSelector", "affinity", "resources", "overhead", "schedulingGroup")
_LISTS: Final = (
    "containers",
    "initContainers",
    "volumes",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
    "schedulingGates",
)


def check_metadata(document: Document, obj: Json, path: Path = ()) -> None:
    """Labels and annotations are texts: no API server decodes an unquoted number or `true`."""
    _check_map(document, obj, path, "metadata")
    metadata, where = obj.get("metadata") or {}, (*path, "metadata")
    _check_text(document, metadata, where, "namespace")
    for place in ("labels", "annotations"):
        _check_map(document, metadata, where, place)
        for key, value in (metadata.get(place) or {}).items():
            if not isinstance(value, str):
                raise _no_text(document, (*where, place, key), value)


def check_workload(document: Document, obj: Json) -> None:
    """The pod, or each pod template, of a workload."""
    templates = workloads.pods_of(obj)
    if not templates:
        raise document.error(
            ("spec",), f"this {obj['kind']} has no pod template; write one under spec"
        )
    for template in templates:
        base = steps(obj, template.path)
        check_metadata(document, template.pod, base)
        _check_spec(document, template.pod, base)
        try:
            requests.effective({"spec": template.pod["spec"]})
        except requests.RequestError as exc:
            where = (*base, *steps(template.pod, exc.path))
            raise document.error(where, f"{exc}; correct it") from exc
        if template.count is not None and template.count < 0:
            raise document.error(
                ("spec",), f"requests {template.count} pods, want zero or more; correct the number"
            )


def _check_spec(document: Document, pod: Json, base: Path) -> None:
    spec, where = pod.get("spec"), (*base, "spec")
    if not isinstance(spec, Mapping):
        raise document.error(where, "the pod has no spec; write its containers")
    for key in _TEXTS:
        _check_text(document, spec, where, key)
    for key in _MAPS:
        _check_map(document, spec, where, key)
    for key in _LISTS:
        _check_list(document, spec, where, key)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            _check_list(document, container, (*where, field, index), "ports")


def _check_text(document: Document, parent: Json, path: Path, key: str) -> None:
    value = parent.get(key)
    if value is not None and not isinstance(value, str):
        raise _no_text(document, (*path, key), value)


def _no_text(document: Document, path: Path, value: object) -> DocumentError:
    return document.error(path, f"{path[-1]}: found {value!r:.60}, want text; put it in quotes")


def _check_map(document: Document, parent: Json, path: Path, key: str) -> None:
    value = parent.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise document.error((*path, key), f"{key}: found {value!r:.60}, want a map")


def _check_list(document: Document, parent: Json, path: Path, key: str) -> None:
    value = parent.get(key)
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise document.error((*path, key), f"{key}: found {value!r:.60}, want a list")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise document.error(
                (*path, key, index), f"{key}[{index}]: found {item!r:.60}, want a map"
            )


def steps(value: object, path: str) -> Path:
    """`spec.containers[0].resources.limits.nvidia.com/gpu` as steps, read along the value.

    Keys may hold dots, so the longest key that fits wins; what is not there ends the walk.
    """
    walked: list[Step] = []
    rest = path
    while rest:
        step = _next(value, rest)
        if step is None:
            break
        walked.append(step)
        width = len(step) if isinstance(step, str) else len(f"[{step}]")
        value = value[step]  # type: ignore[index]  # `_next` found the step in this very value
        rest = rest[width:].removeprefix(".")
    return tuple(walked)


def _next(value: object, rest: str) -> Step | None:
    if isinstance(value, Mapping):
        keys = [key for key in value if rest == key or rest.startswith((f"{key}.", f"{key}["))]
        return max(keys, key=len, default=None)
    if isinstance(value, list) and rest.startswith("["):
        index = rest[1:].partition("]")[0]
        return int(index) if index.isdigit() and int(index) < len(value) else None
    return None
