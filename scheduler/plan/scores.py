"""
Scores of the nodes that fit: runs the score plugins over all rows at once.

    TaintToleration    3   fewer soft taints                                     preferences
    NodeAffinity       2   the weights of preferred terms                             "
    PodTopologySpread  2   soft spread, by `plugins.interpod`                         "
    InterPodAffinity   2   preferred (anti-)affinity, by `plugins.interpod`           "
    ImageLocality      1   images that need not be pulled                             "
    NodeResourcesFit   1   LeastAllocated: the more is left, the better          spreading
    BalancedAllocation 1   CPU and memory used evenly                                 "

and the product's own:

    PlacementPolicy        preferred hardware tier, lesser GPUs, better fabric   preferences
    NumaTopology      10   the best NUMA node, for pods with a NUMA policy       spreading

Each gives 0 to 100, where needed in proportion to the best of the rows that are compared, rounded
as kube-scheduler rounds. A score that is equal for all of these rows is left out: it decides
nothing. Points that depend on the nodes' own facts alone are kept in the `Memo`.
"""

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.plan.memo import Memo, StaticScores


def preferences(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints | None:
    """What the pod prefers among the rows; None: it prefers nothing there."""
    total: Ints | None = None
    for normalize, points in _static(snapshot, pod.spec, memo):
        part = normalize(points, rows)
        if part is not None:
            total = part if total is None else total + part
    for score in snapshot.plugins.score:
        part = score(pod, rows)
        if part is not None:
            total = part if total is None else total + part
    return total


def spreading(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints | None:
    """The whole profile, for each of the rows."""
    total = preferences(snapshot, pod, rows, memo)
    for score in snapshot.plugins.spread_score:
        part = score(pod, rows)
        if part is not None:
            total = part if total is None else total + part
    return total


def _static(snapshot: Snapshot, spec: SchedulingSpec, memo: Memo) -> StaticScores:
    table, plugins = snapshot.table, snapshot.plugins
    key = tuple([score_key(spec) for score_key in plugins.static_score_keys])
    moment = (table.statics, table.images.changes)
    known = memo.kept(memo.static_scores, key)
    if known is not None and known[0] == moment:
        return known[1]
    scores = tuple(
        (plugin.normalize, points)
        for plugin in plugins.static_scores
        if (points := plugin.static_score(spec)) is not None
    )
    memo.remember_scores(key, moment, scores)
    return scores
