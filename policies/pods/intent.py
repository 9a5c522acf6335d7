"""
The intent of a pod: what it requests of placement in its labels, annotations and spec.

    metadata --families--> one canonical value --parse--> Intent
                  |                                |
          two keys disagree                  not accepted            both are Problems, all reported

Admission and scheduler read pods with this same code, so the scheduler does what admission accepts.
A `Problem` names the key, what was found, what is accepted and a fix; reading never raises for what
a user wrote. No parser sees a text longer than its bound in `policies.bounds`, and a number above
its bound is read as the bound. `policies.checks.gang` compares a size with the owner.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from policies import bounds, quantity, vocabulary
from policies import duration as durations
from policies.bounds import Bound
from policies.json_fields import Json, mapping
from policies.pods import fabric, requests
from policies.pods.fabric import NO_FABRIC, Fabric
from policies.text import shown
from policies.vocabulary import Key

T = TypeVar("T")

_BOUNDS: Final = "bounds"  # the rule of a value that is too long or too large

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_RESOURCE_NAME: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
# Kubernetes' own resources that may stand without a domain.
_PLAIN_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that is not accepted: which rule, where, what, and what to do."""

    rule: str
    path: str
    message: str
    fix: str
    saturates: bool = False
    """The value is above its bound, and the scheduler counts it as the bound."""

    def line(self, policy: str) -> str:
        return f"{policy}/{self.rule}: {self.message} ({self.path}): {self.fix}"


@dataclass(frozen=True, slots=True)
class Gang:
    """Membership of a group that is placed together; `min_available` None: not set."""

    name: str
    min_available: int | None
    name_key: Key
    role: str = "worker"
    timeout: float | None = None

    @property
    def is_locality_group(self) -> bool:
        """Named only for locality: without a size its pods do not wait for each other."""
        return self.name_key == vocabulary.annotation(vocabulary.GANG_GROUP_ANNOTATION)

    @property
    def size_in_pod_group(self) -> bool:
        """A PodGroup object holds its size, not its members."""
        return self.name_key.name in (
            vocabulary.X_K8S_POD_GROUP,
            vocabulary.VOLCANO_GROUP_ANNOTATION,
            vocabulary.NATIVE_GROUP_FIELD,
        )


@dataclass(frozen=True, slots=True)
class Numa:
    """A pod's requirements on the NUMA nodes of its host; `policy` None: not set."""

    policy: str | None = None
    resources: tuple[str, ...] | None = None
    prefer: tuple[int, ...] = ()
    avoid: tuple[int, ...] = ()
    memory_intensive: bool | None = None
    distance_weight: int = 50
    gang_spread: str = "packed"

    @property
    def is_strict(self) -> bool:
        return self.policy in vocabulary.NUMA_STRICT_POLICIES


@dataclass(frozen=True, slots=True)
class Intent:
    """What a pod requests of placement besides its plain Kubernetes fields."""

    gang: Gang | None = None
    numa: Numa = Numa()
    vram: int | None = None
    expected_duration: float | None = None
    problems: tuple[Problem, ...] = ()
    fabric: Fabric = NO_FABRIC


_NUMA_KEYS: Final = frozenset(
    (
        *vocabulary.NUMA_POLICY_FAMILIES,
        vocabulary.annotation(vocabulary.NUMA_RESOURCES_ANNOTATION),
        vocabulary.annotation(vocabulary.NUMA_AFFINITY_ANNOTATION),
        vocabulary.annotation(vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION),
        vocabulary.annotation(vocabulary.MEMORY_INTENSIVE_ANNOTATION),
        vocabulary.annotation(vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION),
        vocabulary.annotation(vocabulary.GANG_NUMA_SPREAD_ANNOTATION),
    )
)
KEYS: Final = (
    *sorted(_NUMA_KEYS),
    *vocabulary.GANG_NAME_FAMILIES,
    *vocabulary.GANG_MIN_AVAILABLE_FAMILIES,
    vocabulary.label(vocabulary.GANG_ROLE_LABEL),
    vocabulary.annotation(vocabulary.GANG_TIMEOUT_ANNOTATION),
    vocabulary.annotation(vocabulary.GANG_MEMBERS_ANNOTATION),
    *vocabulary.VRAM_FAMILIES,
    vocabulary.annotation(vocabulary.EXPECTED_DURATION_ANNOTATION),
    *fabric.KEYS,
)
# Place -> name -> key, of every key that is read here.
_NAMES: Final[Mapping[str, Mapping[str, Key]]] = {
    place: {key.name: key for key in KEYS if key.place == place}
    for place in ("labels", "annotations")
}
_NO_NUMA: Final = Numa()
_EMPTY: Final = Intent()


def read(pod: Json, *, path: str = "") -> Intent:
    """The pod's (or pod template's) intent; `path` is where it stands in its object."""
    spec = mapping(pod.get("spec"))
    values = _known_values(mapping(pod.get("metadata")))
    if not values and "schedulingGroup" not in spec:
        return _EMPTY  # most pods
    return _IntentReader(values, spec, path).read()


def _known_values(metadata: Json) -> dict[Key, object]:
    """The keys that this module reads, with their values."""
    known: dict[Key, object] = {}
    for place, names in _NAMES.items():
        values = mapping(metadata.get(place))
        for name in values.keys() & names.keys():
            known[names[name]] = values[name]
    return known


class _IntentReader:
    def __init__(self, values: Mapping[Key, object], spec: Json, path: str) -> None:
        self._values = values
        self._spec = spec
        self._prefix = f"{path}." if path else ""
        self._problems: list[Problem] = []

    def read(self) -> Intent:
        gang = self._gang()
        numa = _NO_NUMA if self._values.keys().isdisjoint(_NUMA_KEYS) else self._numa()
        vram = self._parsed(vocabulary.VRAM_FAMILIES, "vram", _vram, bounds.QUANTITY.clamp)
        duration = self._parsed(
            (vocabulary.annotation(vocabulary.EXPECTED_DURATION_ANNOTATION),),
            "duration",
            durations.parse,
            bounds.DURATION.clamp,
        )
        fabric_request = (
            NO_FABRIC if self._values.keys().isdisjoint(fabric.KEYS) else self._fabric()
        )
        return Intent(gang, numa, vram, duration, tuple(self._problems), fabric_request)

    def _fabric(self) -> Fabric:
        parsers = fabric.PARSERS.items()
        return fabric.of(
            {name: self._parsed(_annotations(name), "fabric", parse) for name, parse in parsers}
        )

    # --- gang ---

    def _gang(self) -> Gang | None:
        first = self._first(self._gang_names(), "gang-families")
        size = self._parsed(
            vocabulary.GANG_MIN_AVAILABLE_FAMILIES, "gang-size", _whole, bounds.GANG_SIZE.clamp
        )
        if first is None:
            self._size_without_name(size)
            return None
        key, name = first
        if not _LABEL_VALUE.fullmatch(name):
            self._problem(
                "gang-name",
                key,
                f"found {name!r}, want a label value of 1 to 63 letters, digits, '-', '_' or '.'",
                "choose a shorter, plainer group name",
            )
        role = self._choice(
            (vocabulary.label(vocabulary.GANG_ROLE_LABEL),), "gang-role", vocabulary.GANG_ROLES
        )
        timeout = self._parsed(
            (vocabulary.annotation(vocabulary.GANG_TIMEOUT_ANNOTATION),),
            "gang-timeout",
            durations.parse,
            bounds.DURATION.clamp,
        )
        members = _annotations(vocabulary.GANG_MEMBERS_ANNOTATION)
        # The scheduler reads it again.
        self._parsed(members, "gang-members", quantity.amounts, bounds.clamp_amounts)
        return Gang(name, size, key, role or "worker", timeout)

    def _gang_names(self) -> Iterable[tuple[Key, str]]:
        yield from self._texts(vocabulary.GANG_NAME_FAMILIES)
        native = mapping(self._spec.get("schedulingGroup")).get("podGroupName")
        if isinstance(native, str):
            key = Key("fields", vocabulary.NATIVE_GROUP_FIELD)
            yield from self._short(key, native, bounds.NATIVE_NAME)

    def _size_without_name(self, size: int | None) -> None:
        if size is None or not self._values.keys().isdisjoint(vocabulary.GANG_NAME_FAMILIES):
            return  # a name that cannot be read is reported already
        key, text = next(iter(self._texts(vocabulary.GANG_MIN_AVAILABLE_FAMILIES)))
        self._problem(
            "gang-name",
            key,
            f"{key.name} is {text} but no group is named",
            f"add the label {vocabulary.GANG_NAME_LABEL}, or remove {key.name}",
        )

    # --- NUMA ---

    def _numa(self) -> Numa:
        choice = self._choice(
            vocabulary.NUMA_POLICY_FAMILIES,
            "numa-policy",
            vocabulary.NUMA_POLICIES,
            aliases=vocabulary.NUMA_POLICY_ALIASES,
        )
        intensive = self._choice(
            _annotations(vocabulary.MEMORY_INTENSIVE_ANNOTATION),
            "numa-memory-intensive",
            ("true", "false"),
        )
        weight = self._parsed(
            _annotations(vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION), "numa-weight", _percent
        )
        spread = self._choice(
            _annotations(vocabulary.GANG_NUMA_SPREAD_ANNOTATION),
            "numa-spread",
            vocabulary.GANG_NUMA_SPREADS,
        )
        return Numa(
            policy=choice,
            resources=self._parsed(
                _annotations(vocabulary.NUMA_RESOURCES_ANNOTATION), "numa-resources", self._names
            ),
            prefer=self._ids(vocabulary.NUMA_AFFINITY_ANNOTATION),
            avoid=self._ids(vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION),
            memory_intensive=None if intensive is None else intensive == "true",
            distance_weight=50 if weight is None else weight,
            gang_spread=spread or "packed",
        )

    def _ids(self, name: str) -> tuple[int, ...]:
        return self._parsed(_annotations(name), "numa-ids", _numbers) or ()

    def _names(self, text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in _entries(text) if part.strip())
        known = _PLAIN_RESOURCES | _named_resources(self._spec)
        for name in names:
            if not _RESOURCE_NAME.fullmatch(name) or not (
                name in known or name.startswith("hugepages-") or "/" in name
            ):
                raise ValueError(
                    f"found {name!r} in {text!r}, want resource names such as "
                    "cpu,memory,nvidia.com/gpu"
                )
        if not names:
            raise ValueError(f"found {text!r}, want at least one resource name")
        return names

    # --- one value out of several families ---

    def _texts(self, families: Sequence[Key]) -> Iterable[tuple[Key, str]]:
        for key in families:
            value = self._values.get(key)
            if isinstance(value, str):
                yield from self._short(key, value, bounds.of(key))
            elif value is not None:
                text = f"{key.name}: found {shown(value)}, which is not a string"
                self._problem("text", key, text, "put the value in quotes")

    def _short(self, key: Key, text: str, bound: Bound) -> Iterable[tuple[Key, str]]:
        """The text where it is short enough to be parsed; a longer one is a problem."""
        if bound.holds(text):
            yield key, text
        else:
            message = f"{key.name}: {bound.too_long(text)}"
            self._problem(_BOUNDS, key, message, "shorten the value or remove the key")

    def _first(
        self, texts: Iterable[tuple[Key, str]], rule: str, same: Callable[[str], object] = str
    ) -> tuple[Key, str] | None:
        """The first of the families; a later one with another value is a problem."""
        first: tuple[Key, str] | None = None
        for key, value in texts:
            if first is None:
                first = (key, value)
            elif same(value) != same(first[1]):
                self._problem(
                    rule,
                    key,
                    f"{first[0]} is {first[1]!r} and {key} is {value!r}",
                    f"keep {first[0].name} alone, or give both the same value",
                )
        return first

    def _parsed(
        self,
        families: Sequence[Key],
        rule: str,
        parse: Callable[[str], T],
        clamp: Callable[[T], T] | None = None,
    ) -> T | None:
        def meaning(text: str) -> object:
            """Two spellings of one value agree: admission adds the canonical key to the other."""
            try:
                return parse(text)
            except ValueError:
                return text

        first = self._first(self._texts(families), rule, meaning)
        if first is None:
            return None
        key, text = first
        try:
            value = parse(text)
        except ValueError as exc:
            self._problem(rule, key, f"{key.name}: {exc}", "correct the value or remove the key")
            return None
        counted = value if clamp is None else clamp(value)
        if counted != value:
            message = f"{key.name}: {bounds.of(key).too_large(text)}"
            self._problem(
                _BOUNDS, key, message, "lower the value or remove the key", saturates=True
            )
        return counted

    def _choice(
        self,
        families: Sequence[Key],
        rule: str,
        accepted: Sequence[str],
        *,
        aliases: Mapping[str, str] | None = None,
    ) -> str | None:
        names = aliases or {}

        def parse(text: str) -> str:
            value = names.get(text, text)
            if value not in accepted:
                raise ValueError(f"found {text!r}, want one of {', '.join(accepted)}")
            return value

        return self._parsed(families, rule, parse)

    def _problem(
        self, rule: str, key: Key, message: str, fix: str, *, saturates: bool = False
    ) -> None:
        place = key.name if key.place == "fields" else f"metadata.{key.place}['{key.name}']"
        problem = Problem(rule, f"{self._prefix}{place}", message, fix, saturates)
        if problem not in self._problems:
            self._problems.append(problem)


def _annotations(name: str) -> tuple[Key, ...]:
    return (vocabulary.annotation(name),)


def _named_resources(spec: Json) -> frozenset[str]:
    """The resource names that the pod's own containers use."""
    names: set[str] = set()
    for _, container in requests.all_containers(spec):
        resources = mapping(container.get("resources"))
        names |= set(mapping(resources.get("requests"))) | set(mapping(resources.get("limits")))
    return frozenset(names)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise ValueError(f"found {text!r}, want a whole number of at least 1")
    return int(text)


def _percent(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 100):
        raise ValueError(f"found {text!r}, want a whole number from 0 to 100")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in _entries(text):
        word = part.strip()
        if not (word.isascii() and word.isdigit() and len(word) <= 4):
            raise ValueError(f"found {text!r}, want a comma list of NUMA node ids such as 0,1")
        ids.append(int(word))
    return tuple(ids)


def _entries(text: str) -> list[str]:
    entries = text.split(",")
    most = bounds.LIST.largest
    if most is not None and len(entries) > most:
        raise ValueError(f"found {len(entries)} entries, want at most {most}")
    return entries


def _vram(text: str) -> int:
    amount = quantity.units(text)
    if amount <= 0:
        raise ValueError(f"found {text!r}, want an amount above zero such as 80Gi")
    return amount
