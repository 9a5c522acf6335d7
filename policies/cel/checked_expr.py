"""
The tree of a checked expression: an engine's bytes as a `CheckedExpr` message, and back.

`policies.cel.proto.checked_expr_pb2` holds the generated messages. Engines wrap the message in an
`Any`. The full names of the messages differ, the field numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from policies.cel.proto.checked_expr_pb2 import CheckedExpr, Expr, Reference, Type

__all__ = [
    "CheckedExpr",
    "DecodeError",
    "Expr",
    "Reference",
    "Type",
    "arguments",
    "children",
    "decode",
    "encode",
    "offset",
]

_TYPE_URL: Final = "type.googleapis.com/cel.expr.CheckedExpr"


def decode(data: bytes) -> CheckedExpr:
    """The expression in an engine's bytes. Raises DecodeError where it is nested too deeply."""
    return CheckedExpr.FromString(AnyMessage.FromString(data).value)


def encode(checked: CheckedExpr) -> bytes:
    """The bytes that an engine reads."""
    return AnyMessage(type_url=_TYPE_URL, value=checked.SerializeToString()).SerializeToString()


def children(node: Expr) -> Iterator[Expr]:
    """Every expression directly inside."""
    match node.WhichOneof("expr_kind"):
        case "select_expr":
            yield node.select_expr.operand
        case "call_expr":
            yield from arguments(node.call_expr)
        case "list_expr":
            yield from node.list_expr.elements
        case "struct_expr":
            for entry in node.struct_expr.entries:
                if entry.HasField("map_key"):
                    yield entry.map_key
                yield entry.value
        case "comprehension_expr":
            loop = node.comprehension_expr
            yield loop.iter_range
            yield loop.accu_init
            yield loop.loop_condition
            yield loop.loop_step
            yield loop.result


def arguments(call: Expr.Call) -> list[Expr]:
    """The receiver, where the call has one, and the arguments."""
    return [call.target, *call.args] if call.HasField("target") else list(call.args)


def offset(checked: CheckedExpr, expression_id: int) -> int:
    """Where an expression stands in its source, in code points."""
    return checked.source_info.positions.get(expression_id, 0)
