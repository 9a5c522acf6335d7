"""
Two schedulers, one question: where they differ.

    agree       kube-scheduler's node is among ours, or neither has one and the texts are equal
    node        it chose a node that we refuse
    feasible    it has no node and we have one
    text        neither has one, with different reasons in the texts
    error       it stumbled over the pod, which the generator should not have made

kube-scheduler may answer before it has seen the whole cluster. Nothing changes by itself here, so
that the same probe, repeated, settles which it was: only what is repeated counts.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.cluster.parity_cluster import Probe, RandomCluster
from tests.cluster.parity_kube_scheduler import Answer, KubeScheduler, Outcome
from tests.cluster.parity_kubenexus import KubeNexus, Verdict

Object = dict[str, Any]

AGREE: Final = ""
REPEATS: Final = 3
LACKING: Final = re.compile(r"(\d+) \S+ CSI driver is not installed on the node")
VARYING: Final = re.compile(r'^\d+ | "[^"]*"')  # counts and names


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    answer: Answer
    verdict: Verdict
    case: str = ""
    cordoned: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = self.answer.error or self.answer.text or f"binds to {self.answer.node}"
        open_to = ", ".join(sorted(self.verdict.nodes)) or "none"
        after = f" with {', '.join(self.cordoned)} cordoned" if self.cordoned else ""
        return (
            f"[{self.kind}] case {self.case}{after}\n"
            f"  kube-scheduler: {said}\n"
            f"  ours: nodes {open_to}; {self.verdict.text}"
        )


class Seen:
    """What kube-scheduler answered, all in all."""

    def __init__(self) -> None:
        self.answers = self.bound = self.late = 0
        self.reasons: Counter[str] = Counter()

    def __call__(self, answer: Answer, *, late: bool) -> None:
        """`late`: the first answer was another one."""
        self.answers += 1
        self.bound += bool(answer.node)
        self.late += late
        reasons = answer.text.partition(": ")[2].rstrip(".")
        self.reasons.update(VARYING.sub("", part) for part in reasons.split(", ") if part)

    def __str__(self) -> str:
        rows = [f"{count:6} {reason}" for reason, count in self.reasons.most_common()]
        head = f"{self.answers} answers, {self.bound} with a node, {self.late} late"
        return "\n".join([head, *rows])


def difference(answer: Answer, verdict: Verdict) -> str:
    if answer.error:
        return "error"
    if answer.node:
        return AGREE if answer.node in verdict.nodes else "node"
    if verdict.nodes:
        return "feasible"
    return AGREE if settled(answer.text) == settled(verdict.text) else "text"


def settled(text: str) -> str:
    """
    The text without what chance decides: of several drivers that a node lacks, kube-scheduler
    names whichever its map gives first, another one for each node.
    """
    head, _, reasons = text.partition(": ")
    parts = reasons.rstrip(".").split(", ")
    lacking = [found for part in parts if (found := LACKING.fullmatch(part))]
    if not lacking:
        return text
    count = sum(int(found[1]) for found in lacking)
    others = [part for part in parts if not LACKING.fullmatch(part)]
    return f"{head}: {', '.join(sorted([*others, f'{count} CSI driver is not installed']))}."


class Judge:
    """One cluster and its probes."""

    def __init__(self, kube_scheduler: KubeScheduler, cluster: RandomCluster, seen: Seen) -> None:
        self._kube_scheduler, self._cluster, self._seen = kube_scheduler, cluster, seen
        self._objects = kube_scheduler.load(cluster)
        self._ours = KubeNexus(self._objects)

    def differences(self) -> Iterator[Difference]:
        for number, probe in enumerate(self._cluster.probes, self._cluster.first):
            found = self._wear_down(probe) if probe.wears else self._settle(probe)
            if isinstance(found, Difference):
                yield replace(found, case=f"{self._cluster.seed}.{number}")

    def _wear_down(self, probe: Probe) -> Difference | Answer:
        """Cordon every node that kube-scheduler chooses, until it chooses none.

        One answer names one node of all that would do. The last one leaves nothing unsaid.
        """
        cordoned: list[str] = []
        try:
            while True:
                found = self._settle(probe)
                if isinstance(found, Difference):
                    return replace(found, cordoned=tuple(cordoned))
                if not found.node:
                    return found
                cordoned.append(found.node)
                self._cordon(found.node, True)
        finally:
            for node in cordoned:
                self._cordon(node, False)

    def _cordon(self, name: str, on: bool) -> None:
        node = self._kube_scheduler.cordon(name, on)
        self._objects = [node if _is_node(item, name) else item for item in self._objects]
        self._ours = KubeNexus(self._objects)

    def _settle(self, probe: Probe) -> Difference | Answer:
        outcome, verdict, kind = self._compare(probe)
        again = 0
        while kind and again < REPEATS:
            again += 1
            outcome, verdict, kind = self._compare(probe)
        self._seen(outcome.answer, late=bool(again and not kind))
        return Difference(kind, outcome.answer, verdict) if kind else outcome.answer

    def _compare(self, probe: Probe) -> tuple[Outcome, Verdict, str]:
        outcome = self._kube_scheduler.schedule(probe)
        books = KubeNexus([*self._objects, *outcome.objects]) if outcome.objects else self._ours
        verdict = books.verdict(outcome.pod)
        return outcome, verdict, difference(outcome.answer, verdict)


def _is_node(item: Object, name: str) -> bool:
    return bool(item["kind"] == "Node" and item["metadata"]["name"] == name)
