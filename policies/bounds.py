"""
How long and how large a value that users write may be: one row for every value that is parsed.

    text --longest--> parser --largest--> value
             |                    |
        not read             admission denies it, the scheduler counts `largest`

Admission denies a value beyond its bound. The scheduler also meets objects that admission never
saw, and no value ends it: a text that is too long is not read and counts as absent, a number that
is too large counts as the largest one. So no parser sees a text of unbounded length, and no
arithmetic meets a number of unbounded size.

`of(key)` is the bound of a label or annotation. A value of a field has a bound by name, for example
`DURATION.clamp(seconds)`. `docs/reference/bounds.md` is generated from `ROWS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from policies import duration, quantity, vocabulary
from policies.text import shown
from policies.vocabulary import Key, annotation, label

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Bound:
    """The longest text and the largest value of one kind of value."""

    name: str
    longest: int
    """Characters of the text; a longer one is not parsed."""
    largest: int | None = None
    """The largest number, or the most entries of a list; None: the text has no magnitude."""
    limit: str = ""
    """The largest value as users write it."""
    keys: tuple[Key, ...] = ()
    fields: tuple[str, ...] = ()
    """Fields of objects that admission denies beyond the bound."""
    tolerated: tuple[str, ...] = ()
    """Fields that the API server accepts with any value: the scheduler counts the bound."""
    saturates: bool = False
    """Whether a larger value counts as the largest one; otherwise as absent."""

    def holds(self, text: str) -> bool:
        """Whether the text is short enough to be parsed."""
        return len(text) <= self.longest

    def text(self, value: object) -> str | None:
        """The value where it is a text short enough to be parsed, else None: it is absent."""
        return value if isinstance(value, str) and self.holds(value) else None

    def clamp(self, value: N) -> N:
        """The value, or the largest one where it is larger or not a number."""
        most = self.largest
        if most is None or value <= most:
            return value
        return type(value)(most)

    def too_long(self, text: str) -> str:
        """What was found and what is accepted, of a text that is not parsed."""
        size = f"{len(text)} characters"
        return f"found {shown(text)} of {size}, want at most {self.longest} characters"

    def too_large(self, text: str) -> str:
        """What was found and what is accepted, of a value above the largest one."""
        return f"found {shown(text)}, want at most {self.limit}"


DURATION: Final = Bound(
    "duration",
    longest=duration.LONGEST,
    largest=87_600 * 3600,
    limit="87600h",
    saturates=True,
    keys=(
        annotation(vocabulary.GANG_TIMEOUT_ANNOTATION),
        annotation(vocabulary.EXPECTED_DURATION_ANNOTATION),
    ),
    fields=(
        "TenantPolicy spec.gang.timeout",
        "PlatformPolicy spec.sharing.halfLife",
        "PlatformPolicy spec.backfill.durations[].duration",
        "PodGroup spec.scheduleTimeoutSeconds",
    ),
    tolerated=("Pod spec.activeDeadlineSeconds", "Pod spec.terminationGracePeriodSeconds"),
)
"""Seconds; ten years."""

DEFAULT_GANG_SIZE: Final = 10_000
"""The largest gang where no PlatformPolicy allows a larger one."""

GANG_SIZE: Final = Bound(
    "gang size",
    longest=9,
    largest=100_000,
    limit="100000",
    saturates=True,
    keys=vocabulary.GANG_MIN_AVAILABLE_FAMILIES,
    fields=(
        "PodGroup spec.schedulingPolicy.gang.minCount",
        "PodGroup spec.minMember",
        "pods of a workload that is one gang",
        "PlatformPolicy spec.gang.maxSize",
        "TenantPolicy spec.gang.maxSize",
        "TenantPolicy spec.gang.minSize",
    ),
)

QUANTITY: Final = Bound(
    "quantity",
    longest=quantity.LONGEST,
    largest=2**53,
    limit="2^53 bytes or devices, or 2^53 thousandths of a CPU",
    saturates=True,
    keys=vocabulary.VRAM_FAMILIES,
    fields=("ResourceReservation spec.resources", "PlatformPolicy spec.hardware[].vram"),
)
"""As the scheduler counts: CPU in thousandths, everything else in whole units."""

AMOUNTS: Final = Bound(
    "amounts by resource",
    longest=1024,
    largest=quantity.MOST,
    limit=f"{quantity.MOST} resources, each at most {QUANTITY.limit}",
    saturates=True,
    keys=(annotation(vocabulary.GANG_MEMBERS_ANNOTATION),),
)
"""`cpu=4,memory=8Gi`; each amount is bounded as a `QUANTITY`."""

LIST: Final = Bound(
    "list of NUMA node ids or resource names",
    longest=256,
    largest=64,
    limit="64 entries",
    keys=(
        annotation(vocabulary.NUMA_RESOURCES_ANNOTATION),
        annotation(vocabulary.NUMA_AFFINITY_ANNOTATION),
        annotation(vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION),
    ),
)

PERCENTAGE: Final = Bound(
    "percentage",
    longest=3,
    largest=100,
    limit="100",
    keys=(annotation(vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION),),
)

NAME: Final = Bound("name of a gang", longest=63, keys=vocabulary.GANG_NAME_FAMILIES)

NATIVE_NAME: Final = Bound(
    "name of a PodGroup object", longest=253, fields=(f"Pod {vocabulary.NATIVE_GROUP_FIELD}",)
)

WORD: Final = Bound(
    "word of a fixed list",
    longest=128,
    keys=(
        label(vocabulary.GANG_ROLE_LABEL),
        *vocabulary.NUMA_POLICY_FAMILIES,
        annotation(vocabulary.MEMORY_INTENSIVE_ANNOTATION),
        annotation(vocabulary.GANG_NUMA_SPREAD_ANNOTATION),
        annotation(vocabulary.CO_LOCATE_ANNOTATION),
        annotation(vocabulary.REQUIRE_CLIQUE_ANNOTATION),
        annotation(vocabulary.MIN_FABRIC_TIER_ANNOTATION),
        annotation(vocabulary.NETWORK_SENSITIVE_ANNOTATION),
        annotation(vocabulary.SPREAD_ZONES_ANNOTATION),
    ),
)

JSON: Final = Bound(
    "JSON that the webhook, the scheduler or the labeler writes",
    longest=64 * 1024,
    keys=(
        annotation(vocabulary.NUMA_ASSIGNED_ANNOTATION),
        annotation(vocabulary.PROFILE_ANNOTATION),
        annotation(vocabulary.NUMA_TOPOLOGY_ANNOTATION),
    ),
)

MOST_CPUS: Final = 4096
CPU_LIST: Final = Bound(
    "CPU list of a NUMA node",
    longest=32 * 1024,
    largest=MOST_CPUS,
    limit=f"CPU {MOST_CPUS - 1}",
    fields=("Node labels and annotations `numa.kubenexus.io/node-<i>-cpus`",),
)

MOST_TEMPLATES: Final = 256
TEMPLATES: Final = Bound(
    "pod templates of a workload",
    longest=0,
    largest=MOST_TEMPLATES,
    limit=f"{MOST_TEMPLATES} templates",
    fields=("workloads whose pods are checked",),
)
"""A number of parts, without a text: every template is evaluated with the whole object at hand."""

ROWS: Final = (
    DURATION,
    GANG_SIZE,
    QUANTITY,
    AMOUNTS,
    LIST,
    PERCENTAGE,
    NAME,
    NATIVE_NAME,
    WORD,
    JSON,
    CPU_LIST,
    TEMPLATES,
)

_BY_KEY: Final[Mapping[Key, Bound]] = {key: row for row in ROWS for key in row.keys}


def of(key: Key) -> Bound:
    """The bound of a label's or annotation's value."""
    return _BY_KEY[key]


def clamp_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """Resource -> amount, none above the largest one."""
    return {name: QUANTITY.clamp(amount) for name, amount in amounts.items()}
