"""
Functions about a pod: `requests(object, 'cpu')`, `limits(object, 'memory')`, `gpus(object)`,
`containers(object)`.

Amounts are the effective ones, over main, init and sidecar containers, counted as the scheduler
counts: CPU in thousandths, the rest in whole units. A resource without a request counts 0.

Handing a whole object from CEL to Python costs more than most rules, so where the argument is a
variable of the request, `rewrite` passes its name instead, and the function finds the object in
the activation and caches the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from policies.cel.functions.overload import Function, FunctionError, Overload
from policies.cel.protocol import Activation
from policies.json_fields import Json
from policies.pods import requests

Recall = Callable[[], Activation]


def _amounts(pod: Json, section: str) -> dict[str, int]:
    try:
        return requests.effective(pod, section=section)
    except (requests.RequestError, AttributeError, TypeError) as error:
        raise FunctionError(f"the {section} of the object cannot be read: {error}") from error


def _containers(pod: Json) -> list[object]:
    try:
        spec = pod.get("spec") or {}
        return [container for _, container in requests.all_containers(spec)]
    except (requests.RequestError, AttributeError, TypeError) as error:
        raise FunctionError(f"the containers of the object cannot be read: {error}") from error


def _requests(pod: Json, resource: str) -> int:
    return _amounts(pod, "requests").get(resource, 0)


def _limits(pod: Json, resource: str) -> int:
    return _amounts(pod, "limits").get(resource, 0)


def _gpus(pod: Json) -> int:
    return requests.gpus(_amounts(pod, "requests"))


NAMES: Final = frozenset({"requests", "limits", "gpus", "containers"})

FUNCTIONS: Final = (
    Function("requests", (Overload(("dyn", "string"), "int", _requests),)),
    Function("limits", (Overload(("dyn", "string"), "int", _limits),)),
    Function("gpus", (Overload(("dyn",), "int", _gpus),)),
    Function("containers", (Overload(("dyn",), "list<dyn>", _containers),)),
)


def at_run_time(recall: Recall) -> tuple[Function, ...]:
    """The same functions over an object, or over the name of a variable of the activation."""

    def known(name: str, section: str) -> Any:
        activation = recall()
        value = activation.memo.get((section, name))
        if value is None:
            pod = activation.values.get(name)
            if not isinstance(pod, Mapping):
                raise FunctionError(f"{name} is null or no object here", kind="no-overload")
            value = _containers(pod) if section == "containers" else _amounts(pod, section)
            activation.memo[section, name] = value
        return value

    def overloads(
        direct: Callable[..., object], named: Callable[..., object], *more: str, result: str
    ) -> tuple[Overload, ...]:
        return (
            Overload(("map<dyn,dyn>", *more), result, direct),
            Overload(("string", *more), result, named),
        )

    return (
        Function(
            "requests",
            overloads(
                _requests, lambda n, r: known(n, "requests").get(r, 0), "string", result="int"
            ),
        ),
        Function(
            "limits",
            overloads(_limits, lambda n, r: known(n, "limits").get(r, 0), "string", result="int"),
        ),
        Function(
            "gpus", overloads(_gpus, lambda n: requests.gpus(known(n, "requests")), result="int")
        ),
        Function(
            "containers",
            overloads(_containers, lambda n: known(n, "containers"), result="list<dyn>"),
        ),
    )
