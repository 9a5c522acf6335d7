"""
Log lines of the services: one JSON object per line, with the message and its fields.

Whole objects are never logged; a field is a name and a short value.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, TextIO

# Attributes of every record; the others came with `extra=` and are logged.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(stream: TextIO, *, level: int = logging.INFO) -> None:
    """Send every logger's lines to the stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Otherwise every probe and scrape would be a log line.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
