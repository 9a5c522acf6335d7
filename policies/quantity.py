"""
Kubernetes quantities, exactly: `500m`, `1.5Gi`, `1e3`, `2E`.

The grammar and the limits are the API server's own: what it accepts is accepted here, with the
same value. Amounts finer than one billionth are rounded away from zero, amounts beyond 2^63-1
are capped. The scheduler counts CPU in thousandths and everything else in whole units, both
rounded up, as kube-scheduler does.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import Final

_SHAPE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)",
    re.ASCII,
)
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_NANO: Final = Decimal("1e-9")
_LARGEST: Final = Decimal(2**63 - 1)
_MOST_DIGITS: Final = 256
_MOST_BITS: Final = 1024
_EXACT: Final = Context(prec=2 * _MOST_DIGITS, Emax=999_999, Emin=-999_999)

ACCEPTED: Final = "a quantity such as 500m, 2, 1.5Gi or 80G"
LONGEST: Final = 64
"""Characters of an amount in an annotation; the API server reads longer ones in its own fields."""
MOST: Final = 64
"""Resources of which an annotation may give an amount."""


class QuantityError(ValueError):
    """The text is not a quantity; its message says what was found and what is accepted."""


def parse(value: object) -> Decimal:
    """The exact amount. JSON numbers are read as the API server reads them, from their text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = "a map" if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise QuantityError(f"found {kind}, want {ACCEPTED}")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        # Not shown: Python does not write integers of any length.
        raise QuantityError(f"found an integer of {value.bit_length()} bits, want {ACCEPTED}")
    text = str(value)
    if len(text) > _MOST_DIGITS:  # before the cache, which would keep it
        raise QuantityError(f"found {text[:37] + '...'!r}, want {ACCEPTED}")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Decimal:
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise QuantityError(f"found {shown!r}, want {ACCEPTED}")
    amount = _EXACT.multiply(Decimal(shape["number"]), _scale(shape["suffix"], text))
    if amount > _LARGEST:
        amount = _LARGEST
    elif amount.adjusted() < -9 and amount:
        amount = _NANO
    else:
        amount = amount.quantize(_NANO, rounding=ROUND_UP, context=_EXACT)
    return -amount if shape["sign"] == "-" else amount


def _scale(suffix: str, text: str) -> Decimal:
    known = _SUFFIXES.get(suffix)
    if known is not None:
        return known
    exponent = int(suffix[1:])
    if abs(exponent) > 999:
        raise QuantityError(f"found {text[:40]!r}: the exponent is out of range, want {ACCEPTED}")
    return Decimal(1).scaleb(exponent, context=_EXACT)


def milli(value: object) -> int:
    """Thousandths, rounded up: how CPU is counted."""
    return _ceil(_EXACT.multiply(parse(value), Decimal(1000)))


def units(value: object) -> int:
    """Whole units, rounded up: how memory, GPUs and everything but CPU are counted."""
    return _ceil(parse(value))


def amount(resource: str, value: object) -> int:
    """What the scheduler counts for `resource`: CPU in thousandths, the rest in whole units."""
    return milli(value) if resource == "cpu" else units(value)


def amounts(text: str) -> dict[str, int]:
    """`cpu=4,memory=8Gi` as the scheduler counts it; at most `MOST` of them."""
    amounts_by_name: dict[str, int] = {}
    rows = text.split(",", MOST)
    if len(rows) > MOST:
        raise QuantityError(f"found {text[:60]!r}..., want amounts of at most {MOST} resources")
    for row in rows:
        name, equals, value = (part.strip() for part in row.partition("="))
        if not (name and equals) or name in amounts_by_name:
            raise QuantityError(f"found {text[:60]!r}, want amounts such as cpu=4,memory=8Gi")
        if len(value) > LONGEST:
            raise QuantityError(
                f"found {value[:37]!r}... of {len(value)} characters for {name[:40]}, want at most"
                f" {LONGEST} characters"
            )
        amounts_by_name[name] = amount(name, value)
        if amounts_by_name[name] < 0:
            raise QuantityError(f"found {row.strip()[:60]!r}, want zero or more")
    return amounts_by_name


def _ceil(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def show(resource: str, count: int) -> str:
    """A counted amount as people write it: `1500` of CPU is `1500m`, 2^31 of memory is `2Gi`."""
    if resource == "cpu":
        return str(count // 1000) if count % 1000 == 0 else f"{count}m"
    if resource == "memory" or resource.startswith("hugepages-") or resource.endswith("storage"):
        return binary(count)
    return str(count)


def binary(count: int) -> str:
    """Bytes in the largest binary unit that shows them exactly, or with one decimal from 1Mi up."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        size = int(_SUFFIXES[suffix])
        if abs(count) >= size and count % size == 0:
            return f"{count // size}{suffix}"
    for suffix in ("Ti", "Gi", "Mi"):
        size = int(_SUFFIXES[suffix])
        if abs(count) >= size:
            return f"{count / size:.1f}{suffix}"
    return str(count)
