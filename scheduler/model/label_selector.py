"""
Label selectors and node selector terms as values, and whether they match a set of labels.

A `Selector` is a LabelSelector:

    None    selects nothing: the field was absent or null
    ()      selects everything: the field was empty
    (...)   every requirement must hold; sorted, each once, so that equal selectors are equal

`NodeTerms` are the terms of a node selector. One of them must hold; an empty term holds nowhere. A
requirement with an unknown operator never holds, so that an unreadable constraint is not ignored.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows, words

FIELD_PREFIX: Final = "field:"
"""Before the key of a requirement on a node's field; `metadata.name` is the only one."""

_NODE_OPERATORS: Final = frozenset({"Gt", "Lt"})  # a LabelSelector does not have these
_INTEGER: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_INT64: Final = range(-(2**63), 2**63)


class LabelRequirement(NamedTuple):
    """One condition on one label. A label that is absent is not `In`, and is `NotIn`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case "Gt" | "Lt":
                return self.key in labels and self.compares(labels[self.key])
            case _:
                return False

    def compares(self, value: str) -> bool:
        """Whether a label's value is above (`Gt`) or below (`Lt`) the requirement's."""
        number, bound = integer(value), integer(self.values[0]) if self.values else None
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


Requirements = tuple[LabelRequirement, ...]
Selector = Requirements | None
NodeTerms = tuple[Requirements, ...]

NOTHING: Final[Selector] = None
EVERYTHING: Final[Selector] = ()


def read(value: object) -> Selector:
    """A v1 LabelSelector."""
    if not isinstance(value, Mapping):
        return NOTHING
    expressions = [
        LabelRequirement(
            str(row.get("key") or ""),
            "" if (operator := str(row.get("operator") or "")) in _NODE_OPERATORS else operator,
            tuple(sorted({str(value) for value in row.get("values") or ()})),
        )
        for row in rows(value.get("matchExpressions"))
    ]
    return joined(expressions, equals(mapping(value.get("matchLabels"))))


def read_node_terms(value: object) -> NodeTerms | None:
    """A v1 NodeSelector; None where there is no selector."""
    if not isinstance(value, Mapping):
        return None
    return tuple(
        (
            *_requirements(row.get("matchExpressions")),
            *_requirements(row.get("matchFields"), prefix=FIELD_PREFIX),
        )
        for row in rows(value.get("nodeSelectorTerms"))
    )


def read_topologies(value: object) -> NodeTerms:
    """The allowedTopologies of a StorageClass; empty: every node."""
    return tuple(
        tuple(
            LabelRequirement(str(row.get("key")), "In", _values(row))
            for row in rows(term.get("matchLabelExpressions"))
        )
        for term in rows(value)
    )


def equals(labels: object) -> Requirements:
    """A plain map of labels as requirements, as in a Service's selector and in matchLabels."""
    return tuple(LabelRequirement(key, "In", (value,)) for key, value in words(labels).items())


def joined(*parts: Iterable[LabelRequirement]) -> Requirements:
    return tuple(sorted({requirement for part in parts for requirement in part}))


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return all(requirement.holds(labels) for requirement in selector)


def any_selects(terms: NodeTerms, labels: Mapping[str, str]) -> bool:
    return any(term and selects(term, labels) for term in terms)


def integer(text: str) -> int | None:
    """A whole number of 64 bits in a label or a requirement; None: the text is not a number."""
    if len(text) > 63 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def _requirements(value: object, *, prefix: str = "") -> Requirements:
    return tuple(
        LabelRequirement(f"{prefix}{row.get('key')}", str(row.get("operator")), _values(row))
        for row in rows(value)
    )


def _values(row: Json) -> tuple[str, ...]:
    return tuple(str(value) for value in row.get("values") or ())
