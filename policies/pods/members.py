"""The pod templates of a workload with what each of them requests of placement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.json_fields import Json
from policies.pods import intent
from policies.pods.intent import Intent
from policies.pods.workloads import PodTemplate, pods_of


@dataclass(frozen=True, slots=True)
class Member:
    """One template of the object with its intent."""

    template: PodTemplate
    intent: Intent
    owned: bool = False
    """The object is a part of what another one makes, such as a Job of a JobSet."""


def members_of(obj: Json) -> list[Member]:
    """The object's pod templates, each with its intent."""
    owned = _is_owned(obj)
    return [Member(part, _read(part), owned) for part in pods_of(obj)]


def _read(template: PodTemplate) -> Intent:
    """The template's intent, with problems placed in the object that holds it."""
    pod_intent = intent.read(template.pod)
    if not pod_intent.problems:
        return pod_intent
    problems = tuple(replace(row, path=template.place(row.path)) for row in pod_intent.problems)
    return replace(pod_intent, problems=problems)


def size_from(owner: Json | None, name: str) -> int | None:
    """The members of gang `name` that the owner makes at one time, where that number is known."""
    return gang_sizes(members_of(owner)).get(name) if owner is not None else None


def gang_sizes(members: Iterable[Member]) -> dict[str, int | None]:
    """Gang -> its members that one object makes at one time; None: the number is not known."""
    counts: dict[str, list[int | None]] = {}
    for member in members:
        if member.intent.gang is not None:
            counts.setdefault(member.intent.gang.name, []).append(member.template.count)
    return {name: total_count(each) for name, each in counts.items()}


def _is_owned(obj: Json) -> bool:
    metadata = obj.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    return isinstance(owners, Sequence) and any(
        isinstance(row, Mapping) and row.get("controller") is True for row in owners
    )


def total_count(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
