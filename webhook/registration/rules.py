"""
The rules to register: the kinds of the product, and those that the policies in force name.

    table of workloads, pods and their subresources --------------+
    policies: kinds and operations --matched with discovery-------+--> RegisteredRule <--> rules

A `RegisteredRule` is one resource and one operation: unlike the rules of a webhook configuration,
such rows compare and add up. Pure: `rule_sync` reads discovery and writes the configuration.

Leases, Events and the access reviews of the API server are never sent, even if a policy names them:
the webhook causes some of them itself, and a cluster that waits for them stops.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster.discovery import Served
from policies import vocabulary
from policies.checks import pod_group
from policies.pods import workloads

Json = dict[str, Any]
Kinds = Mapping[str, frozenset[str]]

NAMESPACED: Final = "Namespaced"
CLUSTER: Final = "Cluster"
EVERYTHING: Final = "*"

_NEVER_GROUPS: Final = frozenset(
    {"authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "events.k8s.io"}
)
_NEVER: Final = frozenset({("", "events")})
_PARTS_OF_PODS: Final = ("ephemeralcontainers", "resize")
_CHANGES: Final = ("CREATE", "UPDATE")
# In the order of the API documentation.
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

# For a rule that takes every kind: the API server does not send these.
NEVER_EXPRESSION: Final = (
    f"!(request.resource.group in [{', '.join(repr(name) for name in sorted(_NEVER_GROUPS))}] || "
    "(request.resource.group == '' && request.resource.resource == 'events'))"
)


@dataclass(frozen=True, slots=True, order=True)
class RegisteredRule:
    """One operation on one resource."""

    group: str
    resource: str
    operation: str
    scope: str = NAMESPACED


def is_never_sent(group: str, resource: str) -> bool:
    return group in _NEVER_GROUPS or (group, resource.partition("/")[0]) in _NEVER


def fixed() -> frozenset[RegisteredRule]:
    """Pods and their subresources, workloads of the table and their `scale`, and PodGroups."""
    rows = {
        RegisteredRule(group, name, operation)
        for group, names in workloads.resources_by_group().items()
        for name in names
        for operation in _CHANGES
    }
    rows |= {
        RegisteredRule(group, f"{workloads.plural(kind)}/scale", "UPDATE")
        for group, kind in workloads.SCALED
    }
    rows |= {
        RegisteredRule(group, "podgroups", operation)
        for group in pod_group.GROUPS
        for operation in _CHANGES
    }
    return frozenset(
        rows | {RegisteredRule("", f"pods/{part}", "UPDATE") for part in _PARTS_OF_PODS}
    )


def needs_discovery(kinds: Kinds) -> bool:
    """Whether policies name a kind whose resource only the API server knows."""
    return any(not _is_in_table(name) for name in kinds if name != EVERYTHING)


def required(kinds: Kinds, served: Iterable[Served] = ()) -> frozenset[RegisteredRule]:
    """The rules that every policy needs to see the kinds it names."""
    rows = set(fixed())
    for name, operations in kinds.items():
        if name == EVERYTHING:
            rows |= {_everything(operation) for operation in operations}
        for group, kind in workloads.KINDS:
            if name in (kind, f"{group}/{kind}"):
                rows |= {
                    RegisteredRule(group, workloads.plural(kind), operation)
                    for operation in operations
                    if operation != "CONNECT"
                }
    listed = list(served)
    whole = {(row.group, row.name): row.kind for row in listed}
    for row in listed:
        # `status` and the like have the kind of the object, which is sent itself.
        parent = whole.get((row.group, row.name.partition("/")[0]))
        if not (row.is_subresource and row.kind == parent):
            rows |= set(_rows_of(row, kinds))
    return frozenset(rows)


def _rows_of(row: Served, kinds: Kinds) -> Iterable[RegisteredRule]:
    names = (row.kind, f"{row.kind_group}/{row.kind}")
    operations = {operation for name in names for operation in kinds.get(name, ())}
    if is_never_sent(row.group, row.name):
        return
    for operation in operations:
        # CONNECT is an operation on a subresource with a kind of its own.
        if operation != "CONNECT" or row.is_subresource:
            yield RegisteredRule(
                row.group, row.name, operation, NAMESPACED if row.namespaced else CLUSTER
            )


def _everything(operation: str) -> RegisteredRule:
    """Namespaced objects only: the wildcard cannot exclude some cluster-scoped ones."""
    return RegisteredRule(EVERYTHING, "*/*" if operation == "CONNECT" else EVERYTHING, operation)


def _is_in_table(name: str) -> bool:
    """A name without a group matches any group; `Pod` is in one group alone."""
    group, _, kind = name.rpartition("/")
    return name == "Pod" or (bool(group) and (group, kind) in workloads.KINDS)


# --- as rules of a webhook configuration ---


def rules(rows: Iterable[RegisteredRule]) -> list[Json]:
    """The fewest rules for these rows, in a fixed order."""
    operations: dict[tuple[str, str, str], set[str]] = {}  # group, scope, resource -> operations
    for row in rows:
        operations.setdefault((row.group, row.scope, row.resource), set()).add(row.operation)
    merged: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for group, scope, resource in sorted(operations):
        present = operations[group, scope, resource]
        key = (group, scope, tuple(name for name in _OPERATIONS if name in present))
        merged.setdefault(key, []).append(resource)
    return [
        rule(group, names, list(verbs), scope=scope)
        for (group, scope, verbs), names in sorted(merged.items())
    ]


def rule(group: str, names: list[str], operations: list[str], *, scope: str = NAMESPACED) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["*" if group else "v1"],
        "resources": names,
        "operations": operations,
        "scope": scope,
    }


def rows_of(rules: Sequence[Mapping[str, Any]]) -> frozenset[RegisteredRule]:
    """The rules of a configuration as rows."""
    return frozenset(
        RegisteredRule(
            str(group), str(resource), str(operation), str(entry.get("scope") or EVERYTHING)
        )
        for entry in rules
        for group in entry.get("apiGroups") or ()
        for resource in entry.get("resources") or ()
        for operation in entry.get("operations") or ()
    )


POLICY_KINDS: Final = rule(
    vocabulary.POLICY_GROUP,
    ["platformpolicies", "tenantpolicies"],
    list(_CHANGES),
    scope=CLUSTER,
)
RESERVATIONS: Final = rule(vocabulary.GROUP, ["resourcereservations"], list(_CHANGES))
RESERVATION_STATUS: Final = rule(vocabulary.GROUP, ["resourcereservations/status"], ["UPDATE"])
