"""
The same pod given to the real kube-scheduler and to ours: what one can do, the other can.

Thousands of generated questions on small random clusters (`parity_cluster`). Where kube-scheduler
binds, its node must be among ours; where it does not, we must have none and report the same reasons
in the same counts. A case is named `cluster.probe`:

    KUBENEXUS_PARITY_SEED=s17.4 pytest tests/cluster/test_parity.py      that one alone
    KUBENEXUS_PARITY_CASES=20000 KUBENEXUS_PARITY_BASE=z …               another, longer series
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from kubenexus.dev.binaries.locate import Binaries
from tests.cluster import parity_cluster, parity_kube_scheduler, parity_shrink
from tests.cluster.conftest import KUBERNETES
from tests.cluster.parity_cluster import PROBES, RandomCluster
from tests.cluster.parity_compare import Difference, Judge, Seen, difference
from tests.cluster.parity_draw import FEATURES
from tests.cluster.parity_kube_scheduler import Answer, KubeScheduler
from tests.cluster.parity_kubenexus import Verdict

pytestmark = pytest.mark.cluster

CASES = int(os.environ.get("KUBENEXUS_PARITY_CASES", "2000"))
BASE = os.environ.get("KUBENEXUS_PARITY_BASE", "s")
SEED = os.environ.get("KUBENEXUS_PARITY_SEED", "")
SMALL = 3  # differences that are made small for the report
SHOWN = 20
# Before 1.37 kube-scheduler takes a namespace for one without labels here, and so for a match.
ALL = FEATURES - {"namespaces unlike"} if KUBERNETES.startswith("1.36.") else FEATURES
NO_ASSIGNMENT: frozenset[str] = frozenset()
ENOUGH = 60  # differences after which more would say nothing new

# What kube-scheduler must say at least this often in 1,000 cases: a reason that is never given was
# never compared.
OFTEN = {
    "node(s) were unschedulable": 100,
    "node(s) had untolerated taint(s)": 60,
    "node(s) didn't match Pod's node affinity/selector": 100,
    "node(s) didn't satisfy plugin(s) [NodeAffinity]": 5,
    "node(s) didn't have free ports for the requested pod ports": 15,
    "Too many pods": 30,
    "Insufficient cpu": 60,
    "Insufficient memory": 30,
    "Insufficient ephemeral-storage": 20,
    "Insufficient example.com/gpu": 20,
    "node(s) had no available disk": 3,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod": 7,
    "node(s) exceed max volume count": 15,
    "pod has unbound immediate PersistentVolumeClaims": 3,
    "persistentvolumeclaim not found": 5,
    "persistentvolume not found": 3,
    "node(s) didn't find available persistent volumes to bind": 12,
    "node(s) did not have enough free storage": 2,
    "node(s) didn't match PersistentVolume's node affinity": 15,
    "node(s) had no available volume zone": 6,
    "node(s) didn't match pod topology spread constraints": 5,
    "node(s) didn't match pod topology spread constraints (missing required label)": 20,
    "node(s) didn't match pod affinity rules": 30,
    "node(s) didn't match pod anti-affinity rules": 10,
    "node(s) didn't satisfy existing pods anti-affinity rules": 15,
    "node(s) didn't match Pod's required features": 10,
}


def features() -> frozenset[str]:
    named = os.environ.get("KUBENEXUS_PARITY_FEATURES", "")
    return frozenset(named.split(",")) if named else ALL


def clusters() -> Iterator[RandomCluster]:
    if SEED:
        seed, _, number = SEED.partition(".")
        found = parity_cluster.random_cluster(seed, features())
        yield found.only(int(number)) if number else found
        return
    for turn in range(-(-CASES // PROBES)):
        yield parity_cluster.random_cluster(f"{BASE}{turn}", features())


@pytest.fixture(scope="module")
def kube_scheduler(
    kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeScheduler]:
    with parity_kube_scheduler.kube_scheduler(
        kubernetes_binaries, tmp_path_factory.mktemp("parity")
    ) as found:
        yield found


def report(kube_scheduler: KubeScheduler, found: list[Difference], seen: Seen) -> str:
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(d.kind for d in found).items())
    lines = [f"{len(found)} differences ({kinds}) in {seen}"]
    for spot, each in enumerate(found[:SHOWN]):
        lines.append(str(each))
        if spot < SMALL:
            seed, _, number = each.case.partition(".")
            cluster = parity_cluster.random_cluster(seed, features()).only(int(number))
            small = parity_shrink.shrink(kube_scheduler, cluster, each.kind)
            lines += ["  the smallest cluster that shows it:", parity_shrink.shown(small)]
        lines.append(
            f"  again: KUBENEXUS_PARITY_SEED={each.case} pytest tests/cluster/test_parity.py"
        )
    return "\n".join(lines)


def seldom(seen: Seen) -> dict[str, tuple[int, int]]:
    """Reason -> (how often, at least), for those that came too seldom in a whole series."""
    if SEED or features() != ALL or CASES < 1000:
        return {}
    wanted = {reason: count * CASES // 1000 for reason, count in OFTEN.items()}
    return {
        reason: (seen.reasons[reason], least)
        for reason, least in wanted.items()
        if seen.reasons[reason] < least
    }


@pytest.mark.timeout(300 + CASES)  # a busy machine takes many times what an idle one does
def test_kube_scheduler_and_ours_agree(kube_scheduler: KubeScheduler) -> None:
    found: list[Difference] = []
    seen = Seen()
    for cluster in clusters():
        found += Judge(kube_scheduler, cluster, seen).differences()
        if len(found) >= ENOUGH:
            break
    print(seen)
    assert not found, report(kube_scheduler, found, seen)
    assert not seldom(seen), seen


@pytest.mark.parametrize(
    ("answer", "verdict", "kind"),
    [
        pytest.param(Answer(node="a"), Verdict(frozenset("ab"), ""), "", id="its node is ours"),
        pytest.param(Answer(node="a"), Verdict(frozenset("b"), ""), "node", id="we refuse it"),
        pytest.param(Answer(node="a"), Verdict(NO_ASSIGNMENT, "t"), "node", id="we refuse all"),
        pytest.param(Answer(text="t"), Verdict(NO_ASSIGNMENT, "t"), "", id="neither, same reasons"),
        pytest.param(Answer(text="t"), Verdict(NO_ASSIGNMENT, "u"), "text", id="other reasons"),
        pytest.param(Answer(text="t"), Verdict(frozenset("a"), "t"), "feasible", id="only we"),
        pytest.param(Answer(error="e"), Verdict(NO_ASSIGNMENT, "t"), "error", id="it stumbles"),
    ],
)
def test_what_counts_as_a_difference(answer: Answer, verdict: Verdict, kind: str) -> None:
    assert difference(answer, verdict) == kind
