"""Kubernetes' `quantity` functions, exact: `quantity('1Gi') == quantity('1024Mi')`."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Final

from policies import quantity
from policies.cel.functions.overload import Function, FunctionError, Overload, opaque, text_of

TYPE: Final = "kubernetes.Quantity"
_EXACT: Final = Context(prec=600)
_INT64: Final = 2**63


def _new(amount: Decimal) -> dict[str, object]:
    reduced = amount.normalize(_EXACT)
    return opaque(TYPE, f"{reduced:f}" if reduced else "0")


def _amount(value: object) -> Decimal:
    text = text_of(value, TYPE)
    if text is None:
        raise FunctionError("not a quantity", kind="no-overload")
    return Decimal(text)


def _parse(text: str) -> dict[str, object]:
    try:
        return _new(quantity.parse(text))
    except quantity.QuantityError as error:
        raise FunctionError(str(error)) from error


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except quantity.QuantityError:
        return False
    return True


def _is_integer(value: object) -> bool:
    amount = _amount(value)
    return amount == amount.to_integral_value() and -_INT64 <= amount < _INT64


def _as_integer(value: object) -> int:
    if not _is_integer(value):
        raise FunctionError("cannot convert value to integer")
    return int(_amount(value))


def _compare(left: object, right: object) -> int:
    first, second = _amount(left), _amount(right)
    return (first > second) - (first < second)


def _add(left: object, right: object) -> dict[str, object]:
    return _new(_EXACT.add(_amount(left), _operand(right)))


def _sub(left: object, right: object) -> dict[str, object]:
    return _new(_EXACT.subtract(_amount(left), _operand(right)))


def _operand(value: object) -> Decimal:
    return Decimal(value) if isinstance(value, int) else _amount(value)


def _sign(value: object) -> int:
    return _compare(value, opaque(TYPE, "0"))


FUNCTIONS: Final = (
    Function("quantity", (Overload(("string",), TYPE, _parse),)),
    Function("isQuantity", (Overload(("string",), "bool", _is_quantity),)),
    Function(
        "sign",
        (Overload((TYPE,), "int", _sign), Overload((TYPE,), "int", _sign, member=True)),
    ),
    Function("isInteger", (Overload((TYPE,), "bool", _is_integer, member=True),)),
    Function("asInteger", (Overload((TYPE,), "int", _as_integer, member=True),)),
    Function(
        "asApproximateFloat",
        (Overload((TYPE,), "double", lambda value: float(_amount(value)), member=True),),
    ),
    Function(
        "add",
        (
            Overload((TYPE, TYPE), TYPE, _add, member=True),
            Overload((TYPE, "int"), TYPE, _add, member=True),
        ),
    ),
    Function(
        "sub",
        (
            Overload((TYPE, TYPE), TYPE, _sub, member=True),
            Overload((TYPE, "int"), TYPE, _sub, member=True),
        ),
    ),
    Function("compareTo", (Overload((TYPE, TYPE), "int", _compare, member=True),)),
    Function(
        "isGreaterThan",
        (Overload((TYPE, TYPE), "bool", lambda a, b: _compare(a, b) > 0, member=True),),
    ),
    Function(
        "isLessThan",
        (Overload((TYPE, TYPE), "bool", lambda a, b: _compare(a, b) < 0, member=True),),
    ),
)
