import io
import json
import logging
from collections.abc import Iterator

import pytest

from kubenexus import json_logs


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield root
    root.handlers[:], root.level = before, level


def test_a_log_line_is_one_json_object_with_its_fields(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    json_logs.configure(stream)
    logging.getLogger("scheduler.test").info("bound", extra={"pod": "ns/p", "node": "a"})
    line = json.loads(stream.getvalue())
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "scheduler.test",
        "message": "bound",
        "pod": "ns/p",
        "node": "a",
    }
