"""
The shape of a CEL expression: which part of its text is an operand of which other.

    text --tokens--> tree of Nodes, each with the place of its text

For display and copies of parts. It knows no types and evaluates nothing: the engine decides whether
a text is an expression. A text that this module cannot parse has no tree (None), never a wrong one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal[
    "name", "literal", "select", "index", "call", "list", "map", "message", "unary", "binary", "if"
]

LOOPS: Final = frozenset(
    {"all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy", "optMap", "optFlatMap"}
    | {"transformList", "transformMap", "transformMapEntry"}
)
"""Macros whose leading arguments name the variables of a loop."""

_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:\s|//[^\n]*)+)
    |(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:
        (?<=[rR])(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
        |(?<=[rR][bB])(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
        |\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?
        |\d+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[A-Za-z0-9_.\-/ ]+`)
    |(?P<sign>&&|\|\||[<>=!]=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_LEVELS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"<", "<=", ">", ">=", "==", "!=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
_WORDS: Final = frozenset({"true", "false", "null"})
_DEEPEST: Final = 60


@dataclass(frozen=True, slots=True)
class Node:
    """
    One part of an expression; its place includes the brackets around it.

    `text` is the name of a name, field, call or operator, or a literal as written. A call's
    children are its target, where `on` says that it has one, and then its arguments.
    """

    kind: Kind
    start: int
    end: int
    text: str = ""
    children: tuple["Node", ...] = ()
    on: bool = False

    @property
    def arguments(self) -> tuple["Node", ...]:
        return self.children[1:] if self.on else self.children

    @property
    def loop(self) -> frozenset[str]:
        """The variables of a macro, which only its other arguments may read."""
        if self.kind != "call" or not self.on:
            return frozenset()
        if self.text == "bind" and self.children[0].text == "cel":
            return frozenset(argument.text for argument in self.arguments[:1])
        if self.text not in LOOPS:
            return frozenset()
        return frozenset(
            argument.text for argument in self.arguments[:-1] if argument.kind == "name"
        )


def free(node: Node) -> Iterator[Node]:
    """The names that are read and not bound by a loop inside; a namespace counts as a name."""
    if node.kind == "name":
        yield node
    bound = node.loop
    for index, child in enumerate(node.children):
        inside = bound and not (node.on and index == 0)
        yield from (name for name in free(child) if not inside or name.text not in bound)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it, from left to right, the outer ones first."""
    yield node
    for child in node.children:
        yield from walk(child)


def parse(source: str) -> Node | None:
    """The tree of an expression, or None where the text cannot be parsed."""
    try:
        reader = _Reader(source)
        tree = reader.expression(0)
        return tree if reader.at_end() else None
    except _Lost:
        return None


class _Lost(Exception):
    """The text cannot be parsed."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def _tokens(source: str) -> Iterator[_Token]:
    place = 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None or match.end() == place:
            raise _Lost
        kind = match.lastgroup or ""
        if kind != "blank":
            yield _Token(kind, match[0], place, match.end())
        place = match.end()
    yield _Token("end", "", place, place)


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, source: str) -> None:
        self._tokens = list(_tokens(source))
        self._next = 0

    def at_end(self) -> bool:
        return self._tokens[self._next].kind == "end"

    def expression(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise _Lost
        condition = self._binary(0, depth)
        if not self._take("?"):
            return condition
        yes = self._binary(0, depth)
        self._need(":")
        no = self.expression(depth + 1)
        return Node("if", condition.start, no.end, "?:", (condition, yes, no))

    def _binary(self, level: int, depth: int) -> Node:
        if level == len(_LEVELS):
            return self._unary(depth)
        left = self._binary(level + 1, depth)
        while (sign := self._tokens[self._next]).text in _LEVELS[level] and sign.kind != "string":
            self._next += 1
            right = self._binary(level + 1, depth)
            left = Node("binary", left.start, right.end, sign.text, (left, right))
        return left

    def _unary(self, depth: int) -> Node:
        sign = self._tokens[self._next]
        if sign.kind == "sign" and sign.text in ("!", "-"):
            if depth > _DEEPEST:
                raise _Lost
            self._next += 1
            inner = self._unary(depth + 1)
            return Node("unary", sign.start, inner.end, sign.text, (inner,))
        return self._member(depth)

    def _member(self, depth: int) -> Node:
        node = self._primary(depth)
        while True:
            if self._take(".") or self._take(".?"):
                node = self._field(node, depth)
            elif self._take("[") or self._take("[?"):
                inside = self.expression(depth + 1)
                node = Node("index", node.start, self._need("]"), "[]", (node, inside))
            elif node.kind in ("name", "select") and self._peek("{"):
                items, end = self._items(depth, "}", message=True)
                node = Node("message", node.start, end, "", items)
            else:
                return node

    def _field(self, node: Node, depth: int) -> Node:
        name = self._tokens[self._next]
        if name.kind != "name":
            raise _Lost
        self._next += 1
        if self._peek("("):
            arguments, end = self._items(depth, ")")
            return Node("call", node.start, end, name.text, (node, *arguments), on=True)
        return Node("select", node.start, name.end, name.text.strip("`"), (node,))

    def _primary(self, depth: int) -> Node:
        token = self._tokens[self._next]
        if token.kind == "sign" and token.text in ("[", "{"):
            close, kind = ("]", "list") if token.text == "[" else ("}", "map")
            items, end = self._items(depth, close)
            return Node("list" if kind == "list" else "map", token.start, end, "", items)
        if self._take("("):
            node = self.expression(depth + 1)
            return replace(node, start=token.start, end=self._need(")"))
        self._next += 1
        if token.kind in ("string", "number") or token.text in _WORDS:
            return Node("literal", token.start, token.end, token.text)
        if token.kind != "name" or token.text.startswith("`"):
            raise _Lost
        if self._peek("("):
            arguments, end = self._items(depth, ")")
            return Node("call", token.start, end, token.text, arguments)
        return Node("name", token.start, token.end, token.text)

    def _items(
        self, depth: int, close: str, *, message: bool = False
    ) -> tuple[tuple[Node, ...], int]:
        """What stands between brackets: arguments, items, or keys and values in turn."""
        self._next += 1
        items: list[Node] = []
        while not self._peek(close):
            self._take("?")
            if message:
                if self._tokens[self._next].kind != "name":
                    raise _Lost
                self._next += 1
            else:
                items.append(self.expression(depth + 1))
            if close == "}":
                self._need(":")
                items.append(self.expression(depth + 1))
            if not self._take(","):
                break
        return tuple(items), self._need(close)

    def _peek(self, text: str) -> bool:
        token = self._tokens[self._next]
        return token.kind == "sign" and token.text == text

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._next += 1
        return True

    def _need(self, text: str) -> int:
        if not self._take(text):
            raise _Lost
        return self._tokens[self._next - 1].end
