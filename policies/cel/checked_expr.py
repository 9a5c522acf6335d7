"""
The tree of a checked expression, read from and written to its protobuf form
(`cel.expr.CheckedExpr`).

Only what rewriting needs: messages as lists of numbered fields, with a table of which fields hold
messages. What the table does not know stays as bytes and is written back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

Schema = Mapping[int, str]

# message -> field number -> message in that field
SCHEMAS: Final[Mapping[str, Schema]] = {
    "Any": {2: "Checked"},
    # The tables beside the tree are large and seldom needed: `entries` decodes them on demand.
    "Checked": {4: "Expr"},
    "SourceInfo": {4: "PositionEntry"},
    "PositionEntry": {},
    "ReferenceEntry": {2: "Reference"},
    "Reference": {},
    "TypeEntry": {2: "Type"},
    "Type": {6: "ListType", 7: "MapType", 14: "AbstractType"},
    "ListType": {1: "Type"},
    "MapType": {1: "Type", 2: "Type"},
    "AbstractType": {2: "Type"},
    "Expr": {
        3: "Constant",
        4: "Ident",
        5: "Select",
        6: "Call",
        7: "List",
        8: "Struct",
        9: "Comprehension",
    },
    "Constant": {},
    "Ident": {},
    "Select": {1: "Expr"},
    "Call": {1: "Expr", 3: "Expr"},
    "List": {1: "Expr"},
    "Struct": {2: "Entry"},
    "Entry": {3: "Expr", 4: "Expr"},
    "Comprehension": {2: "Expr", 4: "Expr", 5: "Expr", 6: "Expr", 7: "Expr"},
}
_MESSAGE: Final = 2


@dataclass(slots=True)
class ExprNode:
    """A message: its kind and its fields in order, each (number, wire type, value)."""

    kind: str
    fields: list[tuple[int, int, int | bytes | ExprNode]] = field(default_factory=list)

    def nodes(self, number: int) -> list[ExprNode]:
        """The messages of a field."""
        return [v for n, _, v in self.fields if n == number and isinstance(v, ExprNode)]

    def node(self, number: int) -> ExprNode | None:
        """The message of a field, where there is one."""
        found = self.nodes(number)
        return found[-1] if found else None

    def text(self, number: int) -> str:
        """The text of a field, empty where it is absent."""
        for n, _, value in self.fields:
            if n == number and isinstance(value, bytes):
                return value.decode("utf-8", "replace")
        return ""

    def number(self, number: int) -> int:
        """The number of a field, zero where it is absent."""
        for n, _, value in self.fields:
            if n == number and isinstance(value, int):
                return value
        return 0

    def children(self) -> Iterator[ExprNode]:
        """Every message directly inside."""
        return (value for _, _, value in self.fields if isinstance(value, ExprNode))


def message(kind: str, *fields: tuple[int, int | str | ExprNode]) -> ExprNode:
    """A new message from (number, value) pairs."""
    made: list[tuple[int, int, int | bytes | ExprNode]] = []
    for number, value in fields:
        if isinstance(value, int):
            made.append((number, 0, value))
        else:
            made.append((number, _MESSAGE, value.encode() if isinstance(value, str) else value))
    return ExprNode(kind, made)


def decode(data: bytes, kind: str) -> ExprNode:
    """The message in these bytes."""
    schema = SCHEMAS[kind]
    node = ExprNode(kind)
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire = key >> 3, key & 7
        value: int | bytes | ExprNode
        if wire == 0:
            value, position = _read_varint(data, position)
        else:
            size, position = (
                (_fixed(wire), position) if wire != _MESSAGE else _read_varint(data, position)
            )
            value = data[position : position + size]
            position += size
            if number in schema:
                value = decode(value, schema[number])
        node.fields.append((number, wire, value))
    return node


def entries(checked: ExprNode, number: int, kind: str) -> list[ExprNode]:
    """The rows of a table that was left as bytes."""
    return [decode(v, kind) for n, _, v in checked.fields if n == number and isinstance(v, bytes)]


def types(checked: ExprNode) -> dict[int, ExprNode]:
    """Expression id -> its type."""
    rows = entries(checked, 3, "TypeEntry")
    return {row.number(1): row.node(2) or ExprNode("Type") for row in rows}


def encode(node: ExprNode) -> bytes:
    """The bytes of a message."""
    out = bytearray()
    for number, wire, value in node.fields:
        out += _varint(number << 3 | wire)
        if isinstance(value, int):
            out += _varint(value)
            continue
        data = encode(value) if isinstance(value, ExprNode) else value
        if wire == _MESSAGE:
            out += _varint(len(data))
        out += data
    return bytes(out)


def _fixed(wire: int) -> int:
    return 8 if wire == 1 else 4


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 0x80:  # nearly all of them
        return value, position
    value &= 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
