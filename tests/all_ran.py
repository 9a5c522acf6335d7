"""
Fails where tests that must run did not: the cluster tests skipped, or none collected at all.

Reads the JUnit reports that `make test` leaves in a folder. Tests may skip where the data they
need is absent, and say so; a cluster test that did not run proves nothing and is a failure.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

REPORTS = {
    "unit.xml": True,
    "conformance.xml": True,
    "cluster.xml": False,
}  # report -> whether skips are allowed


def problems(folder: Path) -> list[str]:
    found = []
    for name, may_skip in REPORTS.items():
        path = folder / name
        if not path.exists():
            found.append(f"{path}: no report; run `make test`")
            continue
        cases = list(ElementTree.parse(path).iter("testcase"))
        skipped = [case.get("name", "?") for case in cases if case.find("skipped") is not None]
        print(f"{name}: {len(cases)} tests, {len(skipped)} skipped")
        if not cases:
            found.append(f"{path}: no test was found")
        elif skipped and not may_skip:
            found.append(f"{path}: skipped {', '.join(skipped[:10])}; cluster tests must run")
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]))
    print("\n".join(lines) or "every test that must run did run")
    sys.exit(1 if lines else 0)
