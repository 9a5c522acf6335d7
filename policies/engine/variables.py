"""
What expressions may know of a request besides its objects: `tenant`, `workload`, `gang`, `numa`.

    tenant     {name, tier, rank, source}
    workload   {type, hardwareTier, kind, group, name}; kind, group and name are the controller's,
               or the pod's own where nobody controls it; type is the pod's own label until
               classification has spoken
    gang       null, or {name, minAvailable (0: nobody said), role, timeout (seconds, 0: unsaid)}
    numa       {policy ('' where nobody said), strict, resources, memoryIntensive}

Only what some expression reads is worked out. Keys are always there, so that no `has` is needed.

`metadata.managedFields` is left out of the objects unless an expression names it: it is the half of
most objects, the API server's own affair, and handing it to an engine costs more than all the rest.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any

from policies import vocabulary
from policies.cel.field_usage import ReachableFields, together
from policies.engine.compiled import MANAGED, CompiledPolicy
from policies.engine.policyset import PolicyTables
from policies.engine.request import AdmissionRequest, pod_from
from policies.engine.result import TenantIdentity
from policies.json_fields import Json, mapping
from policies.pods import intent
from policies.pods.intent import Intent


def shown(obj: Json | None, needed: Set[str]) -> Json | None:
    """The object as expressions see it that read no more than what is needed."""
    if obj is None or MANAGED in needed:
        return obj
    metadata = mapping(obj.get("metadata"))
    if MANAGED not in metadata:
        return obj
    kept = dict(metadata)
    del kept[MANAGED]
    return {**obj, "metadata": kept}


def needed_by(policies: Iterable[CompiledPolicy]) -> Set[str]:
    """The variables that expressions of the policies read, and whether they name managedFields."""
    return frozenset[str]().union(*(policy.facts for policy in policies))


def reached(policies: Iterable[CompiledPolicy], judged: bool) -> ReachableFields:
    """What expressions of the policies reach of the objects; `judged`: validations too."""
    return together(tuple((one.judged if judged else one.asked).get() for one in policies))


class CelVariables:
    """The facts of one object of a request, each worked out at most once."""

    def __init__(
        self,
        admission: AdmissionRequest,
        who: TenantIdentity,
        tables: PolicyTables,
        obj: Json | None,
        *,
        is_pod: bool,
    ) -> None:
        self._admission, self._who, self._tables = admission, who, tables
        self._object, self._is_pod = obj, is_pod
        # Writes make another object, which may ask for something else.
        self._intent = admission.asked if is_pod and obj is admission.object else None

    @property
    def pod(self) -> Json:
        """The pod that the facts are about; of a workload, its first template's."""
        if self._is_pod:
            return self._object or self._admission.old_object or {}
        templates = self._admission.templates
        return pod_from(self._admission, templates[0]) if templates else {}

    @property
    def intent(self) -> Intent:
        if self._intent is None:
            self._intent = intent.read(self.pod)
        return self._intent

    def values(self, policies: Sequence[CompiledPolicy], params: Json | None) -> dict[str, Any]:
        """The variables of an activation; what no expression of the policies reads is null."""
        admission = self._admission
        needed = needed_by(policies)
        return {
            "object": shown(self._object, needed),
            "oldObject": shown(admission.old_object, needed),
            "request": admission.request() if "request" in needed else None,
            "namespaceObject": admission.namespace_object,
            "params": params,
            "tenant": self.tenant() if "tenant" in needed else None,
            "workload": self.workload(self._hint(), "") if "workload" in needed else None,
            "gang": self.gang() if "gang" in needed else None,
            "numa": self.numa() if "numa" in needed else None,
        }

    def tenant(self) -> Json:
        who = self._who
        known = self._tables.tiers.get(who.tier)
        rank = known.rank if known is not None else 0
        return {"name": who.tenant, "tier": who.tier, "rank": rank, "source": who.source}

    def workload(self, type_: str, hardware_tier: str) -> Json:
        metadata = mapping(self.pod.get("metadata"))
        api_version, kind, name = "v1", "Pod", str(metadata.get("name") or "")
        owners = metadata.get("ownerReferences")
        for owner in owners if isinstance(owners, list) else ():
            if mapping(owner).get("controller") is True:
                api_version = str(owner.get("apiVersion") or "")
                kind, name = str(owner.get("kind") or ""), str(owner.get("name") or "")
        return {
            "type": type_,
            "hardwareTier": hardware_tier,
            "kind": kind,
            "group": api_version.rpartition("/")[0],
            "name": name,
        }

    def _hint(self) -> str:
        labels = mapping(mapping(self.pod.get("metadata")).get("labels"))
        found = labels.get(vocabulary.WORKLOAD_TYPE_LABEL)
        return found if isinstance(found, str) else ""

    def gang(self) -> Json | None:
        found = self.intent.gang
        if found is None:
            return None
        return {
            "name": found.name,
            "minAvailable": found.min_available or 0,
            "role": found.role,
            "timeout": found.timeout or 0.0,
        }

    def numa(self) -> Json:
        found = self.intent.numa
        return {
            "policy": found.policy or "",
            "strict": found.is_strict,
            "resources": list(found.resources or ()),
            "memoryIntensive": found.memory_intensive is True,
        }
