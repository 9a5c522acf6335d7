"""
The API server's part in the creation of an object, as far as the simulation depends on it.

    object --> namespace? --> name free? --> defaults, priority --> mutate --> validate --> stored
                   |              |                 |                              |
                   +--------------+---- denied -----+------------------------------+

Denials by the API server itself have its own words; those of the webhook name policy and rule.
Imitated: namespaces, names, `schedulerName`, priority classes, excluded namespaces. Not imitated:
ResourceQuotas, LimitRanges, other webhooks, validation of fields that the simulation does not read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubenexus.simulate import controllers
from policies import vocabulary
from policies.engine.policyset import PolicySet
from policies.json_fields import JsonDict
from policies.pods import workloads
from policies.text import timestamp
from webhook.admission import decide
from webhook.registration import configurations
from webhook.review import patch
from webhook.review.codec import Review

DEFAULT_SCHEDULER: Final = "default-scheduler"
_ALWAYS_THERE: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_USER: Final = {"username": "kubenexus-simulate", "groups": ["system:authenticated"]}


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The answer to the client, and the object as stored where it was admitted."""

    obj: JsonDict
    denials: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[JsonDict, ...] = ()


class ApiServer:
    """Namespaces, priority classes and names in use; stores no objects."""

    def __init__(
        self,
        namespaces: Iterable[JsonDict],
        priority_classes: Iterable[JsonDict] = (),
        *,
        policies: PolicySet,
    ) -> None:
        self._policies = policies
        self._namespaces = {name: _namespace(name) for name in _ALWAYS_THERE}
        for namespace in namespaces:
            self._namespaces[namespace["metadata"]["name"]] = _labelled(namespace)
        self._priorities = dict(_SYSTEM_PRIORITIES)
        self._default_class = ("", 0)
        for priority_class in priority_classes:
            name, value = (
                str(priority_class["metadata"]["name"]),
                int(priority_class.get("value") or 0),
            )
            self._priorities[name] = value
            if priority_class.get("globalDefault") is True:
                self._default_class = (name, value)
        self._names: set[tuple[str, str, str]] = set()  # (resource, namespace, name)
        self._created = 0

    def create(self, obj: JsonDict, *, owner: JsonDict | None = None) -> AdmissionAnswer:
        """Create the object; `owner` is the workload whose controller made a pod."""
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        metadata = {"namespace": "default", **obj["metadata"]}
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        metadata["uid"] = controllers.uid(str(obj["kind"]), namespace, name)
        metadata["creationTimestamp"] = self._now()
        obj = {**obj, "metadata": metadata}
        resource = workloads.plural(str(obj["kind"]))
        qualified = f"{resource}.{group}" if group else resource
        if namespace not in self._namespaces:
            return AdmissionAnswer(obj, (f'namespaces "{namespace}" not found',))
        if (qualified, namespace, name) in self._names:
            return AdmissionAnswer(obj, (f'{qualified} "{name}" already exists',))
        if obj["kind"] == "Pod":
            problem = self._default_pod(obj)
            if problem:
                return AdmissionAnswer(obj, (f'pods "{name}" is forbidden: {problem}',))
        answer = self._admit(
            Review(
                uid=metadata["uid"],
                operation="CREATE",
                kind=str(obj["kind"]),
                resource=resource,
                group=group,
                version=version,
                namespace=namespace,
                name=name,
                user=_USER,
                object=obj,
            ),
            obj,
            owner,
        )
        if not answer.denials:
            self._names.add((qualified, namespace, name))
        return answer

    def _admit(self, review: Review, obj: JsonDict, owner: JsonDict | None) -> AdmissionAnswer:
        if review.namespace in configurations.EXCLUDED_NAMESPACES:
            return AdmissionAnswer(obj)
        facts = decide.Facts(namespace=self._namespaces[review.namespace], owner=owner)
        mutation = decide.mutate(review, facts, self._policies, now=_START)
        stored = patch.apply(obj, mutation.patch)
        verdict = decide.validate(replace(review, object=stored), facts, self._policies, now=_START)
        failures = (*mutation.failures, *verdict.failures)
        return AdmissionAnswer(
            obj=stored,
            denials=tuple(failure.line() for failure in failures),
            warnings=tuple(dict.fromkeys((*mutation.warnings, *verdict.warnings))),
            changes=mutation.patch,
        )

    def _default_pod(self, pod: JsonDict) -> str:
        """Fill in the defaults that precede webhooks; returns why the API server denies the pod."""
        spec = dict(pod["spec"])
        pod["spec"] = spec
        spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
        named = spec.get("priorityClassName")
        if named is not None and named not in self._priorities:
            return f"no PriorityClass with name {named} was found"
        name, value = (named, self._priorities[named]) if named else self._default_class
        if name:
            spec["priorityClassName"] = name
        spec["priority"] = value
        return ""

    def _now(self) -> str:
        """One second later for each object; the date has no meaning."""
        self._created += 1
        return timestamp(_START + timedelta(seconds=self._created))


def _namespace(name: str) -> JsonDict:
    return _labelled({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _labelled(namespace: Mapping[str, Any]) -> JsonDict:
    """With the label that the API server puts on every namespace."""
    metadata = namespace["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        vocabulary.NAMESPACE_NAME_LABEL: metadata["name"],
    }
    return {**namespace, "metadata": {**metadata, "labels": labels}}
