"""
CEL selectors over devices, on the engine that policies run on.

    device.driver                          string
    device.attributes["domain"].name       int, bool, string, semantic version
    device.capacity["domain"].name         quantity
    device.allowMultipleAllocations        bool

As in Kubernetes a domain that a device lacks is an empty map, while a name that is missing in a
domain is an error. An error fails the allocation and is reported; it never counts as "no match".
The engine has no maps with defaults. So after a missing key the expression is evaluated once more,
with an empty map for every domain that it indexes. `in` gives the right result in the first run;
only an expression that needs both at once could differ.

Results are cached for each device until the device changes; the programs used last are kept.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policies.cel import engines, protocol
from policies.cel.functions import quantity, semver
from policies.cel.functions.overload import Function, FunctionError
from scheduler import bounded
from scheduler.plugins.dra.device_types import Attribute, Device, DeviceId

ENVIRONMENT: Final = protocol.Environment.of(["device"])
_INDEX: Final = re.compile(
    r"""\bdevice\s*\.\s*(attributes|capacity)\s*\[\s*(?:\?\s*)?(["'])([^"']*)\2"""
)
MAX_PROGRAMS: Final = 1024  # compiled selectors: users write as many claims as they like
MAX_RESULTS: Final = 200_000

MatchResult = bool | str
"""Whether the device is selected; a text is an error."""


def _constructor(functions: Sequence[Function], name: str) -> Callable[..., object]:
    return next(item.overloads[0].call for item in functions if item.name == name)


_quantity: Final = _constructor(quantity.FUNCTIONS, "quantity")
_version: Final = _constructor(semver.FUNCTIONS, "semver")


@dataclass(frozen=True, slots=True)
class _Compiled:
    program: protocol.Program | None
    error: str
    domains: tuple[tuple[str, str], ...]
    """(attributes or capacity, domain) that the expression names"""


class DeviceSelectors:
    """Evaluates selectors; `engine` is created for the first of them."""

    def __init__(self, engine: Callable[[], protocol.Engine] = engines.engine) -> None:
        self._create_engine = engine
        self._engine: protocol.Engine | None = None
        self._programs: dict[str, _Compiled] = {}
        # (selector, device) -> the device that was evaluated, and the result
        self._results: dict[tuple[str, DeviceId], tuple[Device, MatchResult]] = {}

    def matches(self, selectors: Sequence[str], device: Device) -> MatchResult:
        """Whether all selectors match; the error of the first that fails, with its number."""
        for number, source in enumerate(selectors):
            result = self._match(source, device)
            if isinstance(result, str):
                return f"selector #{number}{result}"
            if not result:
                return False
        return True

    def _match(self, source: str, device: Device) -> MatchResult:
        known = self._results.get((source, device.id))
        if known is None or known[0] is not device:
            result = (device, self._evaluate(source, device))
            known = bounded.remember(self._results, (source, device.id), result, MAX_RESULTS)
        return known[1]

    def _evaluate(self, source: str, device: Device) -> MatchResult:
        compiled = self._compiled(source)
        if compiled.program is None:
            return f": CEL compile error: {compiled.error}"
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
        known = bounded.used(self._programs, source)
        if known is None:
            known = bounded.remember(self._programs, source, self._compile(source), MAX_PROGRAMS)
        return known

    def _compile(self, source: str) -> _Compiled:
        if self._engine is None:
            self._engine = self._create_engine()
        domains = tuple((match[1], match[3]) for match in _INDEX.finditer(source))
        try:
            return _Compiled(self._engine.compile(source, ENVIRONMENT), "", domains)
        except protocol.CompileError as error:
            return _Compiled(None, error.message, domains)


def _run(program: protocol.Program, device: Mapping[str, Any]) -> bool:
    return protocol.evaluate_bool(program, protocol.Activation({"device": device}))


def values(device: Device, domains: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """The device as expressions see it, with an empty map for each domain that it lacks."""
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
            return [_version(item) for item in attribute.value]
        case "ints" | "bools" | "strings":
            return list(attribute.value)
        case _:
            return attribute.value
