"""Raw JSON, read without trust: what has another type than expected reads as empty."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def mapping(value: object) -> Json:
    """The value where it is a map, else an empty one."""
    # Almost always a dict, and asking an abstract class costs several times as much.
    return value if isinstance(value, (dict, Mapping)) else {}
