"""
The effective requests of a pod, by Kubernetes' own rule.

    containers and sidecars run together            their requests add up
    a plain init container runs alone               it needs its own, plus the sidecars before it
    pod-level resources                             replace the sum for the resources they name
    a pod being resized in place                    the largest of the requested, the granted and
                                                    the running amounts; an infeasible resize does
                                                    not count
    overhead of the runtime class                   is added

Amounts are counted as the scheduler counts them: CPU in thousandths, everything else in whole
units. Works on raw JSON; a field of the wrong shape raises `RequestError` naming its path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from policies import quantity, vocabulary
from policies.json_fields import Json, mapping
from policies.text import shown

Amounts = dict[str, int]

# Pod-level requests exist for these alone; a container's share of others still counts.
_POD_LEVEL_PREFIX: Final = "hugepages-"
_POD_LEVEL: Final = frozenset({"cpu", "memory"})
# Almost always a dict, and asking an abstract class costs several times as much.
_MAPS: Final = (dict, Mapping)
_GPUS: Final = frozenset(vocabulary.GPU_RESOURCES)


_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class RequestError(ValueError):
    """A resource field cannot be read; `path` says which."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def effective(
    pod: Json, *, section: str = "requests", defaults: Mapping[str, int] = _NOTHING
) -> Amounts:
    """
    The pod's effective requests (or limits), as kube-scheduler counts them.

    `defaults` count for every container that does not name the resource.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}

    def requested(container: Json, path: str) -> Amounts:
        return {**defaults, **_requested(container, path, section)}

    total = _peak(spec, requested)
    level = _level((spec.get("resources") or {}), "spec.resources", section)
    if section == "requests" and status:
        total = _while_resizing(spec, status, total, requested, defaults)
        level = _level_while_resizing(status, level)
    total.update(level)
    overhead = _amounts(spec.get("overhead"), "spec.overhead")
    # A resource without a limit stays without one: overhead only raises limits that exist.
    _add(total, {k: n for k, n in overhead.items() if section == "requests" or k in total})
    return total


def gpus(amounts: Mapping[str, int]) -> int:
    """Whole GPUs among the amounts, of every vendor."""
    return sum(amounts.get(name, 0) for name in vocabulary.GPU_RESOURCES)


def names_gpus(spec: Json) -> bool:
    """Whether the pod's spec names a GPU resource, even with the amount 0."""
    requested = [container.get("resources") for _, container in all_containers(spec)]
    requested.append({"requests": spec.get("overhead")})
    return any(
        not _GPUS.isdisjoint(mapping(mapping(resources).get(section)))
        for resources in requested
        for section in ("requests", "limits")
    )


def all_containers(spec: Json) -> Iterator[tuple[str, Json]]:
    """Every container that can ever run in the pod, with its path."""
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from _containers(spec, field)


def _containers(spec: Json, field: str) -> Iterator[tuple[str, Json]]:
    raw = spec.get(field) or ()
    if not isinstance(raw, (list, Sequence)) or isinstance(raw, str):
        raise RequestError(f"spec.{field}", "found no list of containers")
    for index, container in enumerate(raw):
        path = f"spec.{field}[{index}]"
        if not isinstance(container, _MAPS):
            raise RequestError(path, f"found {shown(container)}, want a container")
        yield path, container


def _peak(spec: Json, read: Callable[[Json, str], Amounts]) -> Amounts:
    """The peak requests of all containers; `read` gives those of each."""
    total: Amounts = {}
    for path, container in _containers(spec, "containers"):
        _add(total, read(container, path))
    peak: Amounts = {}
    sidecars: Amounts = {}
    for path, container in _containers(spec, "initContainers"):
        requested = read(container, path)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requested)
        else:
            # Of other resources the sidecars need no more now than all of them at the end.
            _raise(peak, {name: n + sidecars.get(name, 0) for name, n in requested.items()})
    _add(total, sidecars)
    _raise(total, peak)
    return total


def _requested(container: Json, path: str, section: str) -> Amounts:
    resources = container.get("resources") or {}
    if not isinstance(resources, _MAPS):
        raise RequestError(f"{path}.resources", f"found {shown(resources)}, want a map")
    requested = _amounts(resources.get(section), f"{path}.resources.{section}")
    if section == "requests":
        # The API server copies limits to missing requests; a manifest not yet admitted has both.
        for name, count in _amounts(resources.get("limits"), f"{path}.resources.limits").items():
            requested.setdefault(name, count)
    return requested


# --- resizes in place ---


def _while_resizing(
    spec: Json,
    status: Json,
    requested: Amounts,
    read: Callable[[Json, str], Amounts],
    defaults: Mapping[str, int],
) -> Amounts:
    infeasible = _infeasible(status)
    granted, running = _granted(status), _running(status)
    if granted is not None and running is not None:
        raw = [granted, running]
    else:
        rows = _statuses(status)
        if not infeasible and not _differ(spec, rows):
            return requested

        def held(
            container: Json, path: str, *readings: Callable[[Json], Amounts | None]
        ) -> Amounts:
            row = rows.get(str(container.get("name")), {})
            for reading in readings:
                if (amounts := reading(row)) is not None:
                    return {**defaults, **amounts}
            return dict(defaults) if infeasible else read(container, path)

        raw = [
            _peak(spec, lambda container, path: held(container, path, _granted)),
            _peak(spec, lambda container, path: held(container, path, _running, _granted)),
        ]
    total: Amounts = {} if infeasible else requested
    for amounts in raw:
        _raise(total, amounts)
    return total


def _level_while_resizing(status: Json, level: Amounts) -> Amounts:
    if not level or status.get("resources") is None:
        return level
    total: Amounts = {} if _infeasible(status) else level
    for amounts in (_granted(status), _running(status)):
        _raise(total, {name: n for name, n in (amounts or {}).items() if _has_level(name)})
    return total


def _infeasible(status: Json) -> bool:
    """Whether the kubelet reports that this node can never grant the resize."""
    for row in status.get("conditions") or ():
        if row.get("type") == "PodResizePending":
            return bool(row.get("reason") == "Infeasible")
    return False


def _statuses(status: Json) -> dict[str, Json]:
    rows: dict[str, Json] = {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for row in status.get(field) or ():
            rows.setdefault(str(row.get("name")), row)
    return rows


def _differ(spec: Json, rows: Mapping[str, Json]) -> bool:
    """Whether a container has been granted, or runs with, other resources than it requests."""
    for field in ("containers", "initContainers"):
        for _, container in _containers(spec, field):
            row = rows.get(str(container.get("name")), {})
            requested = (container.get("resources") or {}).get("requests")
            running = (row.get("resources") or {}).get("requests")
            if any(
                raw not in (None, requested) for raw in (row.get("allocatedResources"), running)
            ):
                return True
    return False


def _granted(row: Json) -> Amounts | None:
    raw = row.get("allocatedResources")
    return None if raw is None else _amounts(raw, "status: allocatedResources")


def _running(row: Json) -> Amounts | None:
    raw = (row.get("resources") or {}).get("requests")
    return None if raw is None else _amounts(raw, "status: resources.requests")


# --- reading ---


def _level(resources: object, path: str, section: str) -> Amounts:
    """The pod-level requests."""
    if not isinstance(resources, _MAPS):
        raise RequestError(path, f"found {shown(resources)}, want a map")
    amounts = _amounts(resources.get(section), f"{path}.{section}")
    return {name: count for name, count in amounts.items() if _has_level(name)}


def _has_level(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith(_POD_LEVEL_PREFIX)


def _amounts(raw: object, path: str) -> Amounts:
    if raw is None:
        return {}
    if not isinstance(raw, _MAPS):
        raise RequestError(path, f"found {shown(raw)}, want a map of resource names to quantities")
    amounts: Amounts = {}
    for name, value in raw.items():
        read = _count if isinstance(value, str) else quantity.amount
        try:
            count = read(str(name), value)
        except quantity.QuantityError as exc:
            raise RequestError(f"{path}.{name}", str(exc)) from exc
        if count < 0:
            raise RequestError(f"{path}.{name}", f"found {shown(value)}, want zero or more")
        amounts[str(name)] = count
    return amounts


@lru_cache(maxsize=4096)
def _count(name: str, value: str) -> int:
    """Cached: pods repeat the same few amounts."""
    return quantity.amount(name, value)


def _add(into: Amounts, more: Mapping[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def _raise(into: Amounts, floor: Mapping[str, int]) -> None:
    for name, count in floor.items():
        if count > into.get(name, 0):
            into[name] = count
