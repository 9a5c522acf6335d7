"""The option `--output` of the commands."""

from enum import StrEnum


class Output(StrEnum):
    """The format of the result."""

    TEXT = "text"
    JSON = "json"
