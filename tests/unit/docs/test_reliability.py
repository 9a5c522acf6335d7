"""docs/reliability.md lists what ends the scheduler on purpose, as the code has it."""

import re
from pathlib import Path

import scheduler
from scheduler.report import events

ROOT = Path(__file__).parents[3]
SOURCES = Path(scheduler.__file__).parents[1]  # the tree, or where the wheel is installed


def listed() -> dict[str, set[str]]:
    """Error -> the files that the table names."""
    text = (ROOT / "docs/reliability.md").read_text()
    table = text.split("<!-- ends: begin -->")[1].split("<!-- ends: end -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return {re.findall(r"`(\w+)`", row)[0]: set(re.findall(r"`([\w/]+\.py)`", row)) for row in rows}


def raised(error: str) -> set[str]:
    """Files of the scheduler that raise the error."""
    return {
        str(path.relative_to(SOURCES))
        for path in (SOURCES / "scheduler").rglob("*.py")
        if re.search(rf"raise {error}\b", path.read_text())
    }


def test_what_ends_the_scheduler_is_listed() -> None:
    table = listed()
    assert table["CorruptState"] == raised("CorruptState")
    assert table["LeaseLost"] == raised("LeaseLost")
    handled = re.findall(
        r"except (?:errors\.)?(\w+) as", (SOURCES / "scheduler/app.py").read_text()
    )
    assert set(table) - {"CorruptState"} == set(handled)


def test_only_a_corrupt_state_passes_the_isolation() -> None:
    """Every other handler of all exceptions reports, undoes or converts what it caught."""
    assert raised("error") <= {"scheduler/isolation.py", "scheduler/errors.py"} | {
        "scheduler/queueing/scheduling_queue.py"  # the default where no scheduler is around it
    }


def test_messages_about_errors_are_explained() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    assert events.error_text("pod team-a/p", "ERROR", retry_after=5.0) in page
    assert events.unreadable_pod("team-a", "p", "uid", "ERROR").note in page
