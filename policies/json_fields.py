"""Raw JSON objects, read without trust: a value of an unexpected type reads as empty."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""A JSON object that is read and never changed."""

JsonDict = dict[str, Any]
"""A JSON object that its owner is still writing."""


def mapping(value: object) -> Json:
    """The value where it is a map, else an empty one."""
    # Almost always a dict, and asking an abstract class costs several times as much.
    return value if isinstance(value, (dict, Mapping)) else {}
