"""
Pod affinity and topology spread read off one node and one pod at a time, from raw objects.

Slow and plain on purpose: it shares no code with the scheduler, so that the two can be compared.
"""

import math
from typing import Any

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"

SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{SKEWED} (missing required label)"
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
KEPT_OUT = "node(s) didn't satisfy existing pods anti-affinity rules"


class OracleCluster:
    """Nodes, pods on nodes, and namespaces with labels, as JSON."""

    def __init__(
        self, nodes: list[Json], pods: list[Json], namespaces: dict[str, dict[str, str]]
    ) -> None:
        self.nodes = nodes
        self.namespaces = namespaces
        self.on = {name_of(node): [] for node in nodes}  # type: dict[str, list[Json]]
        for pod in pods:
            self.on[pod["spec"]["nodeName"]].append(pod)

    # --- which nodes may take which pods ---

    def reasons(self, pod: Json) -> dict[str, str]:
        """node -> why it rejects the pod, or "" """
        return {name_of(node): self._reason(pod, node) for node in self.nodes}

    def _reason(self, pod: Json, node: Json) -> str:
        return self._spread_reason(pod, node) or self._affinity_reason(pod, node)

    def _spread_reason(self, pod: Json, node: Json) -> str:
        hard = [row for row in constraints(pod) if row["whenUnsatisfiable"] == "DoNotSchedule"]
        for row in hard:
            key = row["topologyKey"]
            if key not in labels_of(node):
                return UNLABELLED
            held = self._domains(pod, row, [one["topologyKey"] for one in hard])
            least = min(held.values(), default=0)
            if len(held) < row.get("minDomains", 1):
                least = 0
            mine = held.get(labels_of(node)[key], 0)
            own = 1 if selects(selector_of(row, pod), labels_of(pod)) else 0
            if mine + own - least > row["maxSkew"]:
                return SKEWED
        return ""

    def _domains(self, pod: Json, row: Json, keys: list[str]) -> dict[str, int]:
        held: dict[str, int] = {}
        for node in self.nodes:
            if all(key in labels_of(node) for key in keys) and counts(row, pod, node):
                value = labels_of(node)[row["topologyKey"]]
                held[value] = held.get(value, 0) + self._selected_pods(pod, row, node)
        return held

    def _selected_pods(self, pod: Json, row: Json, node: Json) -> int:
        selector = selector_of(row, pod)
        if selector is not None and not (
            selector.get("matchLabels") or selector.get("matchExpressions")
        ):
            return 0
        return sum(
            1
            for other in self.on[name_of(node)]
            if namespace_of(other) == namespace_of(pod)
            and "deletionTimestamp" not in other["metadata"]
            and selects(selector, labels_of(other))
        )

    def _affinity_reason(self, pod: Json, node: Json) -> str:
        affinity = terms(pod, "podAffinity", REQUIRED)
        if affinity and not self._near(pod, node, affinity):
            return NOT_NEAR
        for term in terms(pod, "podAntiAffinity", REQUIRED):
            for other_node, other in self._all_pods():
                if self._selects_pod(pod, term, other) and in_same_domain(node, other_node, term):
                    return TOO_NEAR
        for other_node, other in self._all_pods():
            for term in terms(other, "podAntiAffinity", REQUIRED):
                if self._selects_pod(other, term, pod) and in_same_domain(node, other_node, term):
                    return KEPT_OUT
        return ""

    def _near(self, pod: Json, node: Json, affinity: list[Json]) -> bool:
        if any(term["topologyKey"] not in labels_of(node) for term in affinity):
            return False
        matching = [
            other_node
            for other_node, other in self._all_pods()
            if all(self._selects_pod(pod, term, other) for term in affinity)
        ]
        if all(any(in_same_domain(node, one, term) for one in matching) for term in affinity):
            return True
        in_any_domain = any(
            term["topologyKey"] in labels_of(one) for one in matching for term in affinity
        )
        return not in_any_domain and all(self._selects_pod(pod, term, pod) for term in affinity)

    def _all_pods(self) -> list[tuple[Json, Json]]:
        return [(node, pod) for node in self.nodes for pod in self.on[name_of(node)]]

    def _selects_pod(self, owner: Json, term: Json, other: Json) -> bool:
        names = term.get("namespaces") or []
        chosen = term.get("namespaceSelector")
        if not names and chosen is None:
            names = [namespace_of(owner)]
        inside = namespace_of(other) in names or selects(
            chosen, self.namespaces.get(namespace_of(other), {})
        )
        return inside and selects(term.get("labelSelector"), labels_of(other))

    # --- which nodes score higher ---

    def affinity_scores(self, pod: Json, names: list[str]) -> dict[str, int]:
        raw: dict[str, int] = {}
        for node in self.nodes:
            if name_of(node) in names:
                raw[name_of(node)] = sum(
                    weight
                    for other_node, other in self._all_pods()
                    for weight, key in self._weights(pod, other)
                    if in_same_domain(node, other_node, {"topologyKey": key})
                )
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        if least == most:
            return dict.fromkeys(raw, 0)
        return {name: int(100 * ((one - least) / (most - least))) for name, one in raw.items()}

    def _weights(self, pod: Json, other: Json) -> list[tuple[int, str]]:
        found = []
        for field, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            for owner, target in ((pod, other), (other, pod)):
                for row in terms(owner, field, PREFERRED):
                    if self._selects_pod(owner, row["podAffinityTerm"], target):
                        term = row["podAffinityTerm"]
                        found.append((sign * row["weight"], term["topologyKey"]))
        for term in terms(other, "podAffinity", REQUIRED):
            if self._selects_pod(other, term, pod):
                found.append((1, term["topologyKey"]))
        return found

    def spread_scores(self, pod: Json, names: list[str]) -> dict[str, int]:
        soft = [row for row in constraints(pod) if row["whenUnsatisfiable"] == "ScheduleAnyway"]
        keys = [row["topologyKey"] for row in soft]
        judged = [
            node
            for node in self.nodes
            if name_of(node) in names and all(key in labels_of(node) for key in keys)
        ]
        raw: dict[str, int] = {}
        for node in judged:
            points = 0.0
            for row in soft:
                key = row["topologyKey"]
                if key == HOST:
                    held, size = self._selected_pods(pod, row, node), len(judged)
                else:
                    held = self._domains(pod, row, keys).get(labels_of(node)[key], 0)
                    size = len({labels_of(one)[key] for one in judged})
                points += held * math.log(size + 2) + row["maxSkew"] - 1
            raw[name_of(node)] = math.floor(points + 0.5)
        most, least = max(raw.values(), default=0), min(raw.values(), default=0)
        scores_of = {
            name: 100 * (most + least - one) // most if most else 100 for name, one in raw.items()
        }
        return {name: scores_of.get(name, 0) for name in names}


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(pod: Json) -> str:
    return str(pod["metadata"]["namespace"])


def labels_of(obj: Json) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


def constraints(pod: Json) -> list[Json]:
    return list(pod["spec"].get("topologySpreadConstraints") or [])


def terms(pod: Json, field: str, how: str) -> list[Json]:
    affinity = pod["spec"].get("affinity") or {}
    return list((affinity.get(field) or {}).get(how) or [])


def in_same_domain(node: Json, other: Json, term: Json) -> bool:
    key = term["topologyKey"]
    one, two = labels_of(node), labels_of(other)
    return key in one and key in two and one[key] == two[key]


def selector_of(row: Json, pod: Json) -> Json | None:
    """The constraint's selector with the pod's own values of `matchLabelKeys`."""
    selector = row.get("labelSelector")
    if selector is None:
        return None
    own = [
        {"key": key, "operator": "In", "values": [labels_of(pod)[key]]}
        for key in row.get("matchLabelKeys") or []
        if key in labels_of(pod)
    ]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *own]}


def counts(row: Json, pod: Json, node: Json) -> bool:
    if row.get("nodeAffinityPolicy", "Honor") == "Honor":
        wanted = pod["spec"].get("nodeSelector") or {}
        if any(labels_of(node).get(key) != value for key, value in wanted.items()):
            return False
    if row.get("nodeTaintsPolicy", "Ignore") == "Honor":
        tolerated = {one["key"] for one in pod["spec"].get("tolerations") or []}
        taints = node["spec"].get("taints") or []
        return all(one["effect"] == "PreferNoSchedule" or one["key"] in tolerated for one in taints)
    return True


def selects(selector: Json | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or []:
        key, values = rule["key"], rule.get("values") or []
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[rule["operator"]]
        if not holds:
            return False
    return True
