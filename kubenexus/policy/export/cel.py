"""
Expressions as Kubernetes evaluates them, or the reason why it cannot.

    expression --syntax--> names, calls, literals --known to Kubernetes?--> text
                                                        |
                                                   NotExportable

Kubernetes has no facts of tenants, gangs or NUMA nodes, no functions of ours, needs lists and maps
of one type, and does not let matchConditions read variables or the namespace. Expressions with the
first two are not exported; a mixed literal is written with `dyn`, and a variable is inlined.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubenexus.policy.explain import cel_syntax
from kubenexus.policy.explain.cel_syntax import Node
from policies.cel import library
from policies.cel.functions import pod
from policies.engine.compiled import Compiled, CompiledPolicy

_COMMENT: Final = re.compile(r"//[^\n]*")
_OWN: Final = frozenset({"tenant", "workload", "gang", "numa"})
_NAMES: Final = frozenset({"object", "oldObject", "request", "namespaceObject", "variables"})
_TYPES: Final = frozenset(
    {"bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"}
)
_NAMESPACES: Final = frozenset({"sets", "optional", "format", "ip", "cidr", "lists", "strings"})
_LANGUAGE: Final = (
    "has size contains endsWith startsWith matches int uint double string bool bytes dyn type"
    " duration timestamp getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek"
    " getHours getMinutes getSeconds getMilliseconds"
    " all exists exists_one existsOne map filter transformList transformMap transformMapEntry"
    " charAt indexOf lastIndexOf join lowerAscii upperAscii replace split substring trim format"
    " strings.quote sets.contains sets.equivalent sets.intersects"
    " optional.of optional.ofNonZeroValue optional.none hasValue value or orValue optMap optFlatMap"
    " slice flatten sort sortBy distinct lists.range reverse"
)
# Not of an expression's own: new in 1.37, whose API server takes new expressions of the version
# before only; and there for patches alone.
_WITHHELD: Final = frozenset({"includes", "jsonpatch.escapeKey"})
FUNCTIONS: Final = (
    frozenset(_LANGUAGE.split()) | {function.name for function in library.KUBERNETES}
) - _WITHHELD
"""What an exported expression may call."""

# name -> the fields that Kubernetes gives it
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "request": frozenset(
        {"kind", "resource", "subResource", "requestKind", "requestResource", "name", "namespace"}
        | {"requestSubResource", "operation", "userInfo", "dryRun", "options"}
    ),
    "namespaceObject": frozenset({"metadata", "spec", "status"}),
}


class NotExportable(Exception):
    """Kubernetes cannot evaluate it; the message says why."""


@dataclass(slots=True)
class CelWriter:
    """Writes the expressions of one policy; `used` are the variables that they read, in order."""

    policy: CompiledPolicy
    used: dict[str, None] = field(default_factory=dict)

    def expression(self, source: str) -> str:
        """For validations and mutations, which may read variables."""
        text = _Writer(source).written()
        for name in _variables(source):
            self._use(name)
        return text

    def condition(self, source: str) -> str:
        """For matchConditions, with variables put in their place."""
        text = self._inlined(source)
        tree = cel_syntax.parse(text)
        if tree is not None and any(
            name.text == "namespaceObject" for name in cel_syntax.free(tree)
        ):
            raise NotExportable(
                "reads namespaceObject, which Kubernetes does not give to matchConditions"
            )
        return text

    def variables(self) -> list[dict[str, str]]:
        """The definitions of what was used."""
        return [
            {"name": name, "expression": _Writer(rule.program.source).written()}
            for name, rule in self.policy.variables.items()
            if name in self.used
        ]

    def _use(self, name: str) -> None:
        if name in self.used:
            return
        source = self._defined(name).program.source
        try:
            _Writer(source).written()
            for below in _variables(source):
                self._use(below)
        except NotExportable as exc:
            raise NotExportable(f"variables.{name} {exc}") from exc
        self.used[name] = None

    def _inlined(self, source: str) -> str:
        def definition(name: str) -> str:
            return f"({self._inlined(self._defined(name).program.source)})"

        return _Writer(source, definition=definition).written()

    def _defined(self, name: str) -> Compiled:
        variable = self.policy.variables.get(name)
        if variable is None:
            raise NotExportable(f"reads variables.{name}, which is not defined")
        return variable


def _variables(source: str) -> Iterator[str]:
    tree = cel_syntax.parse(source)
    for node in cel_syntax.walk(tree) if tree is not None else ():
        if _is_variable(node):
            yield node.text


def _is_variable(node: Node) -> bool:
    return (
        node.kind == "select"
        and node.children[0].kind == "name"
        and (node.children[0].text == "variables")
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes one expression anew: the text as it was, but for what Kubernetes wants otherwise."""

    source: str
    definition: Any = None

    def written(self) -> str:
        tree = cel_syntax.parse(self.source)
        if tree is None:
            raise NotExportable("has a form that cannot be split here")
        _refuse_names(tree)
        for node in cel_syntax.walk(tree):
            _refuse_call(node)
            _refuse_field(node)
        return self._text(tree).strip()

    def _text(self, node: Node) -> str:
        """The node's own text, with that of its children put in."""
        if self.definition is not None and _is_variable(node):
            return str(self.definition(node.text))
        if node.kind == "call" and node.on and node.text == "sign":
            return f"sign({self._text(node.children[0])})"  # Kubernetes has no method of the name
        mixed = _mixed(node)
        parts, place = [], node.start
        for index, child in enumerate(node.children):
            text = self._text(child)
            wrap = mixed and (node.kind == "list" or index % 2 == 1)
            parts += [self._between(place, child.start), f"dyn({text})" if wrap else text]
            place = child.end
        if node.kind == "literal":
            return self.source[node.start : node.end]
        return "".join([*parts, self._between(place, node.end)])

    def _between(self, start: int, end: int) -> str:
        """Signs and names, without the comments that would swallow what is written after them."""
        return _COMMENT.sub("", self.source[start:end])


def _mixed(node: Node) -> bool:
    if node.kind not in ("list", "map"):
        return False
    items = node.children if node.kind == "list" else node.children[1::2]
    return len({_sort(item) for item in items}) > 1


def _sort(node: Node) -> str:
    """The type of a literal; every other node has a type of its own."""
    if node.kind != "literal":
        return node.kind if node.kind in ("list", "map") else "other"
    first = node.text.lstrip("rRbB")[:1]
    if first in ("'", '"'):
        return "bytes" if "b" in node.text[:2].lower().partition(first)[0] else "string"
    if node.text in ("true", "false", "null"):
        return "null" if node.text == "null" else "bool"
    is_double = not node.text.lower().startswith("0x") and any(c in node.text for c in ".eE")
    return "double" if is_double else "uint" if node.text[-1] in "uU" else "int"


def _refuse_names(tree: Node) -> None:
    for name in sorted({node.text for node in cel_syntax.free(tree)}):
        if name in _OWN:
            raise NotExportable(f"reads {name}, which only KubeNexus knows")
        if name == "params":
            raise NotExportable("reads params, which are those of the tenant's policy")
        if name not in _NAMES | _TYPES | _NAMESPACES and name not in ("math", "cel", "base64"):
            raise NotExportable(f"reads {name}, which Kubernetes does not have")


def _refuse_call(node: Node) -> None:
    if node.kind == "message":
        raise NotExportable("makes a message, which Kubernetes does not have")
    if node.kind != "call":
        return
    name = called(node)
    if name in pod.NAMES:
        raise NotExportable(f"calls {name}(), which only KubeNexus has")
    if name not in FUNCTIONS:
        raise NotExportable(f"calls {name}(), which Kubernetes does not have")


def called(node: Node) -> str:
    """The full name of a function: `sets.contains`, but `size` for `x.size()`."""
    target = node.children[0] if node.on else None
    known = (*_NAMESPACES, "math", "cel", "base64", "regex", "jsonpatch")
    if target is not None and target.kind == "name" and target.text in known:
        return f"{target.text}.{node.text}"
    return node.text


def _refuse_field(node: Node) -> None:
    if node.kind != "select" or node.children[0].kind != "name":
        return
    name = node.children[0].text
    if name in _FIELDS and node.text not in _FIELDS[name]:
        raise NotExportable(f"reads {name}.{node.text}, which Kubernetes does not have")


def literal(value: Any) -> str:
    """A JSON value as CEL; maps and lists of several types are written with `dyn`."""
    if isinstance(value, Mapping):
        items = _alike(value.values())
        pairs = zip(value, items, strict=True)
        return f"{{{', '.join(f'{_quoted(key)}: {item}' for key, item in pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_alike(value))}]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _alike(values: Iterable[Any]) -> list[str]:
    items = list(values)
    texts = [literal(value) for value in items]
    if len({type(value) for value in items}) > 1:
        return [f"dyn({text})" for text in texts]
    return texts


def _quoted(text: str) -> str:
    simple = text.isprintable() and "'" not in text and "\\" not in text
    return f"'{text}'" if simple else json.dumps(text, ensure_ascii=False)
