"""
What a pod asks for, by Kubernetes' own rule for the effective request.

    containers and sidecars run together            their requests add up
    a plain init container runs alone               it needs its own, plus the sidecars before it
    pod-level resources                             replace the sum for the resources they name
    a container being resized in place              the larger of what is asked and what is held
    overhead of the runtime class                   comes on top

Amounts are counted as the scheduler counts them: CPU in thousandths, everything else in whole
units. Works on raw JSON; a field of the wrong shape raises `RequestError` naming its path.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policies import quantity, vocabulary

Json = Mapping[str, Any]
Amounts = dict[str, int]

# Pod-level requests exist for these alone; a container's share of others still counts.
_POD_LEVEL_PREFIX: Final = "hugepages-"
_POD_LEVEL: Final = frozenset({"cpu", "memory"})


class RequestError(ValueError):
    """A resource field cannot be read; `path` says which."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def effective(pod: Json, *, what: str = "requests") -> Amounts:
    """The pod's effective requests (or limits), as kube-scheduler counts them."""
    spec = pod.get("spec") or {}
    held = {} if what == "limits" else _held(pod.get("status") or {})
    total: Amounts = {}
    for path, container in _containers(spec, "containers"):
        _add(total, _asked(container, path, what, held))
    peak: Amounts = {}
    sidecars: Amounts = {}
    for path, container in _containers(spec, "initContainers"):
        asked = _asked(container, path, what, held)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            _raise(peak, sidecars)
        else:
            together = dict(sidecars)
            _add(together, asked)
            _raise(peak, together)
    _add(total, sidecars)
    _raise(total, peak)
    total.update(_pod_level(spec, what))
    overhead = _amounts(spec.get("overhead"), "spec.overhead")
    # A resource without a limit stays without one: overhead only raises limits that exist.
    _add(total, {k: n for k, n in overhead.items() if what == "requests" or k in total})
    return total


def gpus(amounts: Mapping[str, int]) -> int:
    """Whole GPUs among the amounts, whoever makes them."""
    return sum(amounts.get(name, 0) for name in vocabulary.GPU_RESOURCES)


def all_containers(spec: Json) -> Iterator[tuple[str, Json]]:
    """Every container that can ever run in the pod, with its path."""
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from _containers(spec, field)


def _containers(spec: Json, field: str) -> Iterator[tuple[str, Json]]:
    found = spec.get(field) or ()
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise RequestError(f"spec.{field}", "found no list of containers")
    for index, container in enumerate(found):
        path = f"spec.{field}[{index}]"
        if not isinstance(container, Mapping):
            raise RequestError(path, f"found {container!r}, want a container")
        yield path, container


def _asked(container: Json, path: str, what: str, held: Mapping[str, Amounts]) -> Amounts:
    resources = container.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise RequestError(f"{path}.resources", f"found {resources!r}, want a map")
    asked = _amounts(resources.get(what), f"{path}.resources.{what}")
    if what == "requests":
        # The API server copies limits to missing requests; a manifest not yet admitted has both.
        for name, count in _amounts(resources.get("limits"), f"{path}.resources.limits").items():
            asked.setdefault(name, count)
        _raise(asked, held.get(str(container.get("name")), {}))
    return asked


def _held(status: Json) -> dict[str, Amounts]:
    """What the kubelet still holds for containers that are being resized, by container name."""
    held: dict[str, Amounts] = {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for index, row in enumerate(status.get(field) or ()):
            path = f"status.{field}[{index}]"
            allocated = _amounts(row.get("allocatedResources"), f"{path}.allocatedResources")
            actual = _amounts(
                (row.get("resources") or {}).get("requests"), f"{path}.resources.requests"
            )
            _raise(allocated, actual)
            if allocated:
                held[str(row.get("name"))] = allocated
    return held


def _pod_level(spec: Json, what: str) -> Amounts:
    resources = spec.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise RequestError("spec.resources", f"found {resources!r}, want a map")
    amounts = _amounts(resources.get(what), f"spec.resources.{what}")
    return {
        name: count
        for name, count in amounts.items()
        if name in _POD_LEVEL or name.startswith(_POD_LEVEL_PREFIX)
    }


def _amounts(found: object, path: str) -> Amounts:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise RequestError(path, f"found {found!r}, want a map of resource names to quantities")
    amounts: Amounts = {}
    for name, value in found.items():
        try:
            count = quantity.amount(str(name), value)
        except quantity.QuantityError as exc:
            raise RequestError(f"{path}.{name}", str(exc)) from exc
        if count < 0:
            raise RequestError(f"{path}.{name}", f"found {value!r}, want zero or more")
        amounts[str(name)] = count
    return amounts


def _add(into: Amounts, more: Mapping[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def _raise(into: Amounts, floor: Mapping[str, int]) -> None:
    for name, count in floor.items():
        if count > into.get(name, 0):
            into[name] = count
