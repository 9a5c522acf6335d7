"""
CEL selectors over devices, on the engine that policies run on.

    device.driver                          string
    device.attributes["domain"].name       int, bool, string, semantic version
    device.capacity["domain"].name         quantity
    device.allowMultipleAllocations        bool

As in Kubernetes a domain that a device does not have is an empty map, while a name that is missing
in a domain is an error, and an error fails the allocation: it is told, never taken for "no". The
engine has no maps with defaults. An expression that fails for want of a key is therefore evaluated
once more with an empty map for every domain that it names as an index; `in` tells the truth the
first time, and only an expression that needs both at once could be told otherwise.

Answers are kept for each device as long as the device stays as it is: nobody evaluates twice.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policies.cel import engines, protocol
from policies.cel.functions import quantity, semver
from policies.cel.functions.overload import Function, FunctionError
from scheduler.plugins.dra.device_types import Attribute, Device, DeviceId

ENVIRONMENT: Final = protocol.Environment.of(["device"])
_INDEX: Final = re.compile(r"""\bdevice\s*\.\s*(attributes|capacity)\s*\[\s*\??\s*(["'])(.*?)\2""")
_CACHE_SIZE: Final = 200_000  # answers

Answer = bool | str
"""Whether the device is selected; a text says what went wrong."""


def _maker(functions: Sequence[Function], name: str) -> Callable[..., object]:
    return next(one.overloads[0].call for one in functions if one.name == name)


_quantity: Final = _maker(quantity.FUNCTIONS, "quantity")
_version: Final = _maker(semver.FUNCTIONS, "semver")


@dataclass(frozen=True, slots=True)
class _Compiled:
    program: protocol.Program | None
    fault: str
    domains: tuple[tuple[str, str], ...]
    """(attributes or capacity, domain) that the expression names"""


class DeviceSelectors:
    """Whether devices are selected; `engine` is made when the first selector is met."""

    def __init__(self, engine: Callable[[], protocol.Engine] = engines.engine) -> None:
        self._make = engine
        self._engine: protocol.Engine | None = None
        self._programs: dict[str, _Compiled] = {}
        # (selector, device) -> the device as it was asked about, and the answer
        self._answers: dict[tuple[str, DeviceId], tuple[Device, Answer]] = {}

    def matches(self, selectors: Sequence[str], device: Device) -> Answer:
        """All of them; the text of the first that fails, with its number."""
        for number, source in enumerate(selectors):
            found = self._one(source, device)
            if isinstance(found, str):
                return f"selector #{number}{found}"
            if not found:
                return False
        return True

    def _one(self, source: str, device: Device) -> Answer:
        known = self._answers.get((source, device.id))
        if known is None or known[0] is not device:
            if len(self._answers) >= _CACHE_SIZE:
                self._answers.clear()
            known = self._answers[source, device.id] = (device, self._evaluate(source, device))
        return known[1]

    def _evaluate(self, source: str, device: Device) -> Answer:
        compiled = self._compiled(source)
        if compiled.program is None:
            return f": CEL compile error: {compiled.fault}"
        try:
            try:
                return _run(compiled.program, values(device))
            except protocol.EvaluationError as error:
                if error.kind != "missing-key" or not compiled.domains:
                    raise
                return _run(compiled.program, values(device, compiled.domains))
        except (protocol.EvaluationError, FunctionError) as error:
            return f" on device {device.id}: CEL runtime error: {error}"

    def _compiled(self, source: str) -> _Compiled:
        known = self._programs.get(source)
        if known is None:
            known = self._programs[source] = self._compile(source)
        return known

    def _compile(self, source: str) -> _Compiled:
        if self._engine is None:
            self._engine = self._make()
        domains = tuple((found[1], found[3]) for found in _INDEX.finditer(source))
        try:
            return _Compiled(self._engine.compile(source, ENVIRONMENT), "", domains)
        except protocol.CompileError as error:
            return _Compiled(None, error.message, domains)


def _run(program: protocol.Program, device: Mapping[str, Any]) -> bool:
    return protocol.evaluate_bool(program, protocol.Activation({"device": device}))


def values(device: Device, domains: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """The device as expressions see it, with an empty map for each of these domains it lacks."""
    maps: dict[str, dict[str, dict[str, Any]]] = {"attributes": {}, "capacity": {}}
    for name, attribute in device.attributes:
        domain, _, key = name.partition("/")
        maps["attributes"].setdefault(domain, {})[key] = _value(attribute)
    for name, amount in device.capacity:
        domain, _, key = name.partition("/")
        maps["capacity"].setdefault(domain, {})[key] = _quantity(amount)
    for kind, domain in domains:
        maps[kind].setdefault(domain, {})
    return {"driver": device.id.driver, "allowMultipleAllocations": False, **maps}


def _value(attribute: Attribute) -> object:
    match attribute.kind:
        case "version":
            return _version(attribute.value)
        case "versions":
            return [_version(one) for one in attribute.value]
        case "ints" | "bools" | "strings":
            return list(attribute.value)
        case _:
            return attribute.value
