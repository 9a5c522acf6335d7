"""One key of the reference, and the writers of keys."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubenexus.reference import markdown

USER: Final = "user or policy"
ADMIN: Final = "cluster admin"
KUBERNETES: Final = "Kubernetes"
DISCOVERY: Final = "GPU feature discovery"


class KeyRow(NamedTuple):
    key: str
    on: str
    values: str
    by: str
    does: str


def each(values: Iterable[str]) -> str:
    return markdown.codes(values)
