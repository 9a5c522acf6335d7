"""The selectors of workloads are kept as long as the workloads exist."""

from scheduler.plugins.interpod.default_spread import SERVICE, DefaultSpread, WorkloadSelector
from tests.unit.scheduler.builders import a_pod


def test_nothing_is_kept_of_namespaces_whose_workloads_are_gone() -> None:
    spread = DefaultSpread()
    for number in range(100):
        workload = WorkloadSelector(SERVICE, f"ns-{number}", "web")
        changed = (spread.put(workload), spread.put(workload), spread.drop(workload))
        assert (changed, spread.drop(workload)) == ((True, False, True), False)
    assert (spread.__dict__["_selectors"], spread.of(a_pod())) == ({}, ())
