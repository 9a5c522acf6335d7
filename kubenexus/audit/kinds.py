"""
The kinds that an audit reads: the table of `policies.pods.workloads`, and those that policies name.

A kind that is not installed is skipped. An API group that does not answer is an error, because the
audit would be incomplete. Cluster-scoped kinds belong to no tenant and are not audited.
"""

from collections.abc import Collection

from cluster import discovery, verbs
from cluster.resources import Resource
from policies.pods import workloads
from webhook.registration import rules


async def kinds(client: verbs.Sends, named: Collection[str] = ()) -> list[Resource]:
    """The served kinds, by group and name; `named` are those of policies."""
    groups = {group for group, _ in workloads.KINDS}
    bare = {name for name in named if "/" not in name and name != "*"} - {
        kind for group, kind in workloads.KINDS if not group
    }
    groups |= {name.partition("/")[0] for name in named if "/" in name}
    rows = await discovery.served(client, groups=None if bare else groups)
    resources: dict[tuple[str, str], Resource] = {}  # (group, kind) -> where
    for row in rows:
        key = (row.group, row.kind)
        is_checked = key in workloads.KINDS or row.kind in named or "/".join(key) in named
        listed = row.namespaced and "list" in row.verbs and not row.is_subresource
        if is_checked and listed and not rules.is_never_sent(row.group, row.name):
            resources.setdefault(key, row.resource)
    return [resources[key] for key in sorted(resources)]
