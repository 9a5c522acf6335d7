"""
Values as a hostile user writes them: magnitudes, lengths and counts on a log scale.

Every choice comes from one random source, so that the same source gives the same value. A number
of any size is as likely as one ten times as large: what breaks at 4,000 characters, at 2^63 or at
the year 10000 is drawn within a few hundred objects, without being named here.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from policies import vocabulary

T = TypeVar("T")

LONGEST_TEXT: Final = 200_000  # characters; the API server takes 262,144 in all annotations
MOST_ITEMS: Final = 300  # entries of one list or map: more fill the request before they say more
DEEPEST: Final = 400  # levels of nested lists and maps
LABEL_LENGTH: Final = 63
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")

# The ranges within which magnitudes are drawn: a size of a gang, of an int32, of an int64, of none.
TOPS: Final = (10**6, 10**6, 10**9, 2**31, 2**63, 10**30)
UNITS: Final = ("ns", "ms", "s", "m", "h", "h", "d")
SUFFIXES: Final = ("", "", "m", "k", "M", "G", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e9", "e99")
ODD_NUMBERS: Final = ("", "0", "-1", "00", "1.5", ".", "1e9", "+4", " 4", "4 ", "0x10", "1_000", "²", "٣", "½", "NaN", "inf", "-0")  # fmt: skip
ODD_TEXTS: Final = ("", " ", "\n", "true", "null", "{}", "[]", "{", "é", "\u202e", "\U0001f600", "a\u0301", "../..", "%00", "${x}", "a,,b", "=", "/")  # fmt: skip
ALPHABETS: Final = ("a", "0", "9", "abcxyz019-", "é", "\U0001f600", ",", "/", "-", ".", '"\\', "{[")
RESOURCES: Final = ("cpu", "cpu", "memory", "ephemeral-storage", *vocabulary.GPU_RESOURCES)  # fmt: skip


# What may be extreme about a pod: its gang, one of our keys, what it requests, a part of its spec.
ASPECTS: Final = ("gang", "key", "requests", "part")


class Draw:
    """
    One object's values; `random` decides everything.

    One of four objects is wild: odd in many places at once. The others are good but for one or two
    aspects, so that the API server stores them and the scheduler meets each extreme value alone.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.wild = self.chance(0.25)
        self._aspects = random.sample(ASPECTS, 1 if self.chance(0.7) else 2)

    def on(self, aspect: str) -> bool:
        """Whether this aspect of the object is extreme."""
        return self.wild or aspect in self._aspects

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def odd(self, share: float) -> bool:
        """The chance of something that makes most readers stop: a fifth of it where not wild."""
        return self.chance(share if self.wild else share / 5)

    def pick(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    # --- magnitudes ---

    def whole(self, top: int | None = None) -> int:
        """From 0 to `top`, on a log scale."""
        exponent: float = self.random.uniform(-0.3, math.log10(top or self.pick(TOPS)))
        return int(10.0**exponent)

    def int32(self) -> int:
        return self._odd_integer(31)

    def int64(self) -> int:
        return self._odd_integer(63)

    def _odd_integer(self, bits: int) -> int:
        """In the range, mostly; at its ends, and beyond them, sometimes."""
        beyond = 1 << bits
        if self.odd(0.2):
            return self.pick((0, -1, beyond - 1, -beyond, beyond))
        return self.whole(beyond - 1)

    def count(self, most: int = MOST_ITEMS) -> int:
        return min(self.whole(most), most)

    # --- texts ---

    def text(self, longest: int = LONGEST_TEXT) -> str:
        if self.chance(0.2):
            return self.pick(ODD_TEXTS)
        alphabet = self.pick(ALPHABETS)
        length = self.whole(longest)
        return (alphabet * (length // len(alphabet) + 1))[:length]

    def number(self) -> str:
        """A number as text: of any magnitude, of any length, or in a notation of its own."""
        kind = self.random.random()
        if kind < (0.6 if self.wild else 0.85):
            return str(self.whole())
        if kind < (0.9 if self.wild else 0.97):
            return self.pick("1379") * self.whole(LONGEST_TEXT)
        return self.pick(ODD_NUMBERS)

    def duration(self) -> str:
        if self.chance(0.2):
            return self.number()  # without a unit
        if self.chance(0.8):
            return f"{self.number()}{self.pick(UNITS)}"
        return f"{self.whole()}{self.pick(UNITS)}" * self.count(10_000)

    def quantity(self) -> str:
        if self.odd(0.4):
            return self.number()
        return f"{self.whole()}{self.pick(SUFFIXES)}"

    def amounts(self) -> str:
        names = [self.resource() for _ in range(1 + self.count(20 if self.wild else 2))]
        return ",".join(f"{name}={self.quantity()}" for name in names)

    def resource(self) -> str:
        if self.odd(0.1):
            # A size beyond its own range ends the API server's handler in a division by zero.
            return f"hugepages-{1 + self.whole(10**6)}Mi"
        if self.chance(0.85):
            return self.pick(RESOURCES)
        return f"x{self.whole(10**6)}.example.com/r{self.whole(100)}"

    def id_list(self) -> str:
        if self.chance(0.3):
            return self.number()
        return ",".join(str(self.whole()) for _ in range(1 + self.count(10_000)))

    def json_text(self) -> str:
        """What our own components write on pods as JSON, with numbers of any size in it."""
        numbers = [self.whole() for _ in range(self.count(50))]
        value: Any = {
            "numa": numbers,
            "gpus": numbers,
            "cpu": numbers,
            "memory": numbers,
            "isolated": self.chance(0.5),
            self.text(100): self.nested(),
        }
        return json.dumps(value)[: self.whole(10**6) + 10]

    def nested(self) -> Any:
        value: Any = self.number()
        for level in range(self.count(DEEPEST)):
            value = [value] if level % 2 else {"a": value}
        return value

    def boolean(self) -> str:
        return self.pick(("true", "false", "True", "1", "yes", ""))

    def word(self) -> str:
        """A word that means something on some key."""
        return self.pick(WORDS)

    def name(self) -> str:
        """The name of an object; mostly one that the API server stores."""
        return self.text(300) if self.odd(0.3) else f"x{self.whole(10**6)}"

    def label_value(self, value: str) -> str:
        """What a label holds, mostly: mutating admission sees labels of any length and letter."""
        if self.odd(0.15):
            return value
        return _label(value)

    def label_values(self, texts: int = 70) -> list[str]:
        """A list of label values that one bad value would make invalid as a whole."""
        values = [_label(self.text(texts)) for _ in range(1 + self.count())]
        return [*values, self.text(texts)] if self.odd(0.1) else values

    def time(self) -> str:
        if self.chance(0.2):
            return self.pick(("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", self.text(100)))
        return f"{self.pick((1970, 2026, 2027, 2038, 9999)):04}-0{1 + self.count(8)}-01T00:00:00Z"


def _label(text: str) -> str:
    return _NO_LABEL.sub("", text[: 2 * LABEL_LENGTH])[:LABEL_LENGTH].strip("-_.")


WORDS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        word
        for value in vars(vocabulary).values()
        if isinstance(value, tuple) and all(isinstance(item, str) for item in value)
        for word in value
        if "/" not in word
    )
)

Writer = Callable[[Draw], str]
KINDS_OF_VALUES: Final[Sequence[Writer]] = (
    Draw.duration,
    Draw.number,
    Draw.quantity,
    Draw.amounts,
    Draw.id_list,
    Draw.json_text,
    Draw.boolean,
    Draw.word,
    Draw.text,
)

# What a key's reader parses; a key that is not listed gets any of the kinds.
READ_AS: Final[Mapping[str, Writer]] = {
    vocabulary.GANG_TIMEOUT_ANNOTATION: Draw.duration,
    vocabulary.EXPECTED_DURATION_ANNOTATION: Draw.duration,
    vocabulary.GANG_MEMBERS_ANNOTATION: Draw.amounts,
    vocabulary.NUMA_AFFINITY_ANNOTATION: Draw.id_list,
    vocabulary.NUMA_ANTI_AFFINITY_ANNOTATION: Draw.id_list,
    vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION: Draw.number,
    vocabulary.NUMA_ASSIGNED_ANNOTATION: Draw.json_text,
    vocabulary.PROFILE_ANNOTATION: Draw.json_text,
    **{key.name: Draw.quantity for key in vocabulary.VRAM_FAMILIES},
    **{key.name: Draw.number for key in vocabulary.GANG_MIN_AVAILABLE_FAMILIES},
}


def _keys() -> tuple[vocabulary.Key, ...]:
    """Every label and annotation of the vocabulary, in its order."""
    keys: dict[vocabulary.Key, None] = {}
    for constant, value in vars(vocabulary).items():
        if constant.startswith("DEV_"):
            continue  # read by kwok, which plays the kubelet here and is no part of the product
        if constant.endswith("_LABEL"):
            keys[vocabulary.label(value)] = None
        elif constant.endswith("_ANNOTATION"):
            keys[vocabulary.annotation(value)] = None
        elif isinstance(value, tuple):
            keys.update((item, None) for item in value if isinstance(item, vocabulary.Key))
    return tuple(keys)


KEYS: Final = _keys()
# Keys by the kind of their values.
PARSED: Final = tuple(
    tuple(key for key in KEYS if READ_AS.get(key.name) is kind)
    for kind in dict.fromkeys(READ_AS.values())
)


def a_key(draw: Draw) -> vocabulary.Key:
    """Any of our keys; mostly one with a parser, each parser as often as the others."""
    return draw.pick(KEYS if draw.odd(0.5) else draw.pick(PARSED))


def key_value(draw: Draw, key: vocabulary.Key) -> str:
    """A value for one of our keys: mostly of the kind that its reader parses."""
    write = None if draw.odd(0.3) else READ_AS.get(key.name)
    value = (write or draw.pick(KINDS_OF_VALUES))(draw)
    return draw.label_value(value) if key.place == "labels" else value
