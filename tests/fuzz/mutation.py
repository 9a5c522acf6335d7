"""
Mutations of JSON: of the value, keeping it JSON, and of its bytes, which need not stay so.

Lengths, numbers and counts are drawn on a logarithmic scale, up to a million characters, 1e30 and
3,000 entries: what is harmless at ten and at a thousand may not be at a hundred thousand.

All choices come from the random source that is passed in: the same source, the same mutant.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

Place = tuple[Any, Any]  # a dict or list, and a key or index in it

# What programs trip over: types, bounds, notations, and words that mean something here.
ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, 5e-324, -0.0, 1.5,
    "", " ", "0", "-1", "1e9", "9" * 400, "1Gi", "80Gi", "-5Gi", "1.5.5", "NaN", "true", "\0", "\n", "é",
    "\u202e", "\U0001f600", "a" * 5000, "{}", "[]", "x/y/z", "~0~1", "../..", "0,1,,2", "1h", "P1D",
    "none", "isolated", "gold", "CREATE", "UPDATE", "DELETE", "CONNECT", "Pod", "Job", "Namespace",
    "binding", "status", "resize", "ephemeralcontainers", "scale", "exec", "kubenexus-scheduler",
    "TenantPolicy", "policy.kubenexus.io", "policy.kubenexus.io/v1alpha1", "object.metadata.name ==",
    [], {}, [None], [[]], [{}], {"": None}, {"name": None}, {"a": {"b": []}}, [1, "a", None, {}],
)  # fmt: skip
KEYS: Final = (
    "metadata", "labels", "annotations", "spec", "template", "containers", "initContainers", "resources",
    "requests", "limits", "name", "ownerReferences", "replicas", "parallelism", "schedulingGroup", "env",
    "", "~", "/", "a/b", "\0", "é", "__proto__", "kind", "apiVersion", "uid", "deletionTimestamp",
)  # fmt: skip
LONGEST: Final = 10**6  # characters
LARGEST: Final = 10**30
MOST: Final = 3_000  # entries
DEPTHS: Final = (10, 60, 100, 120, 130, 500, 2000)


def places(value: Any) -> Iterator[Place]:
    """Every place below the value, however deep."""
    waiting = [value]
    while waiting:
        parent = waiting.pop()
        children = parent.items() if isinstance(parent, dict) else enumerate(parent)
        for key, child in children:
            yield parent, key
            if isinstance(child, dict | list):
                waiting.append(child)


def mutant(random: Random, seeds: Sequence[bytes]) -> bytes:
    """The bytes of a seed after some mutations."""
    value = json.loads(random.choice(seeds))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        places_now = list(places(value))
        if not places_now:
            break
        random.choice(_OF_VALUES)(random, places_now[random.randrange(len(places_now))], places_now)
    body = _encoded(random, value)
    return random.choice(_OF_BYTES)(random, body) if random.random() < 0.15 else body


def _encoded(random: Random, value: Any) -> bytes:
    """As JSON, sometimes with what only some encoders write."""
    try:
        text = json.dumps(value, ensure_ascii=random.random() < 0.5)
    except (RecursionError, ValueError):  # nested too deep, or in itself
        return b"[" * 2000 + b"]" * 2000
    return text.encode("utf-8", "surrogatepass")


def _replace(random: Random, place: Place, others: list[Place]) -> None:
    parent, key = place
    odd = random.choice(ODD)
    parent[key] = json.loads(json.dumps(odd)) if isinstance(odd, dict | list) else odd


def _drop(random: Random, place: Place, others: list[Place]) -> None:
    parent, key = place
    del parent[key]


def _swap(random: Random, place: Place, others: list[Place]) -> None:
    (parent, key), (other, other_key) = place, others[random.randrange(len(others))]
    if _holds(parent[key], other) or _holds(other[other_key], parent):
        return  # the value would hold itself
    parent[key], other[other_key] = other[other_key], parent[key]


def _copy(random: Random, place: Place, others: list[Place]) -> None:
    (parent, key), (other, other_key) = place, others[random.randrange(len(others))]
    with suppress(RecursionError):
        parent[key] = json.loads(json.dumps(other[other_key]))


def _add(random: Random, place: Place, others: list[Place]) -> None:
    parent, _ = place
    odd = json.loads(json.dumps(random.choice(ODD)))
    if isinstance(parent, list):
        parent.extend([odd] * random.choice((1, 2, 300)))
    else:
        parent[random.choice(KEYS)] = odd


def _nest(random: Random, place: Place, others: list[Place]) -> None:
    parent, key = place
    value = parent[key]
    for _ in range(random.choice(DEPTHS)):
        value = [value] if random.random() < 0.5 else {"a": value}
    parent[key] = value


def _text(random: Random, place: Place, others: list[Place]) -> None:
    parent, key = place
    size = random.choice((1, 3, 20, 300))
    parent[key] = "".join(chr(random.choice(_CODES)(random)) for _ in range(size))


def log_scale(random: Random, most: int) -> int:
    """From 1 to `most`, every order of magnitude as often."""
    return int(10 ** random.uniform(0, math.log10(most)))


def _long(random: Random, place: Place, others: list[Place]) -> None:
    """One character many times: alone, or inside the text that stands there."""
    parent, key = _written(random, place, others)
    text = parent[key] if isinstance(parent[key], str) else ""
    at = random.randrange(len(text) + 1)
    character = random.choice((*_PUMPED, *text))
    tail = text[at:] if random.random() < 0.5 else ""
    parent[key] = text[:at] + character * log_scale(random, LONGEST) + tail


def _large(random: Random, place: Place, others: list[Place]) -> None:
    """A number of any size, in the form in which a number stands there."""
    parent, key = _written(random, place, others)
    value = parent[key]
    number = log_scale(random, LARGEST)
    if isinstance(value, str):
        written = str(number) if random.random() < 0.5 else f"{float(number):.3g}"
        parent[key] = re.sub(r"[0-9]+", written, value, count=1) if value else written
    elif isinstance(value, int | float):
        parent[key] = random.choice((number, -number, min(number, 2**63 - 1), 1 / number))


def _written(random: Random, place: Place, others: list[Place]) -> Place:
    """Mostly the value of a label, an annotation or another map of texts: users write those."""
    texts = [
        (parent, key)
        for parent, key in others
        if isinstance(parent, dict) and isinstance(parent[key], str) and "/" in key
    ]
    return random.choice(texts) if texts and random.random() < 0.7 else place


def _many(random: Random, place: Place, others: list[Place]) -> None:
    """Many more entries of a list or a map, like those that stand there."""
    parent, key = place
    value = parent[key]
    if not isinstance(value, list | dict) or not value:
        return
    name, entry = (0, value[0]) if isinstance(value, list) else next(iter(value.items()))
    with suppress(RecursionError):
        row = json.dumps(entry)
        count = min(log_scale(random, MOST), LONGEST // len(row))
        if isinstance(value, list):
            value.extend(_numbered(json.loads(row), index) for index in range(count))
        else:
            value.update({f"{name}{index}": json.loads(row) for index in range(count)})


def _numbered(row: Any, index: int) -> Any:
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        row["name"] += str(index)
    return row


_PUMPED: Final = ("1", "1", "a", " ", ",", "-", ".", "\\", '"', "é")
_CODES: Final[tuple[Callable[[Random], int], ...]] = (
    lambda random: random.randrange(32, 127),
    lambda random: random.randrange(0x20),
    lambda random: random.randrange(0xD800, 0xE000),
    lambda random: random.randrange(0xE000, 0x110000),
)
_OF_VALUES: Final = (
    _replace,
    _replace,
    _replace,
    _drop,
    _swap,
    _copy,
    _add,
    _nest,
    _text,
    _long,
    _large,
    _many,
)


def _holds(value: Any, wanted: Any) -> bool:
    if value is wanted:
        return True
    if not isinstance(value, dict | list):
        return False
    return any(parent[key] is wanted for parent, key in places(value))


def _cut(random: Random, body: bytes) -> bytes:
    return body[: random.randrange(len(body) + 1)]


def _flip(random: Random, body: bytes) -> bytes:
    at = random.randrange(len(body))
    return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]


def _double(random: Random, body: bytes) -> bytes:
    """Repeats a stretch: duplicate keys, among much that is no JSON."""
    start = random.randrange(len(body))
    end = min(len(body), start + random.randrange(1, 60))
    return body[:end] + body[start:end] + body[end:]


def _token(random: Random, body: bytes) -> bytes:
    at = random.randrange(len(body))
    tokens = (
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"\\ud800",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"//",
        b",,",
    )
    return body[:at] + random.choice(tokens) + body[at:]


def _duplicate_key(random: Random, body: bytes) -> bytes:
    key = json.dumps(
        random.choice(("uid", "object", "metadata", "kind", "spec", "labels"))
    ).encode()
    at = body.find(key + b": ")
    odd = json.dumps(random.choice(ODD)).encode()
    return body if at < 0 else body[:at] + key + b": " + odd + b", " + body[at:]


_OF_BYTES: Final = (_cut, _flip, _double, _token, _duplicate_key, _duplicate_key)
