"""
The variables of expressions besides the objects of a request: `tenant`, `workload`, `gang`, `numa`.

    tenant     {name, tier, rank, source}
    workload   {type, hardwareTier, kind, group, name}; kind, group and name are the controller's,
               or the pod's own where it has no controller; type is the pod's own label until
               classification
    gang       null, or {name, minAvailable (0: not set), role, timeout (seconds, 0: not set)}
    numa       {policy ('' where it is not set), strict, resources, memoryIntensive}

Only variables that an expression reads are computed. Keys are always present, so that no `has` is
needed.

`metadata.managedFields` is left out of the objects unless an expression names it: it is half of
most objects, and handing it to an engine costs more than all the rest.
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


def without_managed_fields(obj: Json | None, needed: Set[str]) -> Json | None:
    """The object without its managedFields, unless an expression needs them."""
    if obj is None or MANAGED in needed:
        return obj
    metadata = mapping(obj.get("metadata"))
    if MANAGED not in metadata:
        return obj
    trimmed = dict(metadata)
    del trimmed[MANAGED]
    return {**obj, "metadata": trimmed}


def needed_by(policies: Iterable[CompiledPolicy]) -> Set[str]:
    """The variables that expressions of the policies read, and whether they name managedFields."""
    return frozenset[str]().union(*(policy.facts for policy in policies))


def reached(policies: Iterable[CompiledPolicy], *, validate: bool) -> ReachableFields:
    """What expressions of the policies reach of the objects; `validate`: validations too."""
    if validate:
        return together(tuple(policy.reached.get() for policy in policies))
    return together(tuple(policy.reached_before_validation.get() for policy in policies))


class CelVariables:
    """The variables of one object of a request."""

    def __init__(
        self,
        admission: AdmissionRequest,
        identity: TenantIdentity,
        tables: PolicyTables,
        obj: Json | None,
        *,
        is_pod: bool,
    ) -> None:
        self._admission = admission
        self._identity = identity
        self._tables = tables
        self._object = obj
        self._is_pod = is_pod
        # Defaults make another object, which may have another intent.
        self._intent = admission.intent if is_pod and obj is admission.object else None

    @property
    def pod(self) -> Json:
        """The pod that the variables describe; of a workload, its first template's."""
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
            "object": without_managed_fields(self._object, needed),
            "oldObject": without_managed_fields(admission.old_object, needed),
            "request": admission.request() if "request" in needed else None,
            "namespaceObject": admission.namespace_object,
            "params": params,
            "tenant": self.tenant() if "tenant" in needed else None,
            "workload": self.workload(self._type_label(), "") if "workload" in needed else None,
            "gang": self.gang() if "gang" in needed else None,
            "numa": self.numa() if "numa" in needed else None,
        }

    def tenant(self) -> Json:
        identity = self._identity
        tier = self._tables.tiers.get(identity.tier)
        return {
            "name": identity.tenant,
            "tier": identity.tier,
            "rank": tier.rank if tier is not None else 0,
            "source": identity.source,
        }

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

    def _type_label(self) -> str:
        labels = mapping(mapping(self.pod.get("metadata")).get("labels"))
        value = labels.get(vocabulary.WORKLOAD_TYPE_LABEL)
        return value if isinstance(value, str) else ""

    def gang(self) -> Json | None:
        gang = self.intent.gang
        if gang is None:
            return None
        return {
            "name": gang.name,
            "minAvailable": gang.min_available or 0,
            "role": gang.role,
            "timeout": gang.timeout or 0.0,
        }

    def numa(self) -> Json:
        numa = self.intent.numa
        return {
            "policy": numa.policy or "",
            "strict": numa.is_strict,
            "resources": list(numa.resources or ()),
            "memoryIntensive": numa.memory_intensive is True,
        }
