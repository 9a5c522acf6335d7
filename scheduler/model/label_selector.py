"""
Label selectors as values, and what they say of a set of labels.

    None    selects nothing: the field was absent or null
    ()      selects everything: the field was empty
    (...)   every requirement must hold; sorted, each once, so that equal selectors are equal

An operator that no API server stores selects nothing: a wish that cannot be read is never dropped.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scheduler.model.fields import mapping, rows, words


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
            case _:
                return False


Selector = tuple[LabelRequirement, ...] | None

NOTHING: Final[Selector] = None
EVERYTHING: Final[Selector] = ()


def read(found: object) -> Selector:
    """A v1 LabelSelector."""
    if not isinstance(found, Mapping):
        return NOTHING
    listed = [
        LabelRequirement(
            str(row.get("key") or ""),
            str(row.get("operator") or ""),
            tuple(sorted({str(value) for value in row.get("values") or ()})),
        )
        for row in rows(found.get("matchExpressions"))
    ]
    return joined(listed, equals(mapping(found.get("matchLabels"))))


def equals(labels: object) -> tuple[LabelRequirement, ...]:
    """A plain map of labels as requirements, as Services and matchLabels have it."""
    return tuple(LabelRequirement(key, "In", (value,)) for key, value in words(labels).items())


def joined(*parts: Iterable[LabelRequirement]) -> tuple[LabelRequirement, ...]:
    return tuple(sorted({requirement for part in parts for requirement in part}))


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return all(requirement.holds(labels) for requirement in selector)
