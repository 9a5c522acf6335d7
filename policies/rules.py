"""
Whether the pods that an object is or makes can be obeyed: gangs and what their members say.

    templates --intent.read--> problems of each --group by gang--> problems of the gang
                                                              \\-> warnings

`intent` reads one pod; this module holds several against each other and against the number of
pods that their owner will make. Pure; every finding is reported, not only the first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policies import intent, numa_rules, vocabulary
from policies.intent import Gang, Intent, Problem
from policies.workloads import PodTemplate, pods_of

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found: problems refuse the object, warnings travel with the answer."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One template of the object with what it asks for."""

    template: PodTemplate
    intent: Intent


def members(obj: Json) -> list[Member]:
    """The object's pod templates, each with its intent."""
    return [Member(part, _read(part)) for part in pods_of(obj)]


def check(
    found: Sequence[Member],
    *,
    owner: Json | None = None,
    numa_sizes: Sequence[numa_rules.Size] = (),
) -> Findings:
    """
    Judge the templates of one object.

    `owner` is the controller of a pod, where it has one; `numa_sizes` are the largest NUMA nodes
    that are known.
    """
    problems = [problem for member in found for problem in member.intent.problems]
    warnings: list[str] = []
    for group in _by_gang(found).values():
        _check_gang(group, owner, problems, warnings)
    _check_mixed(found, warnings)
    for member in found:
        too_large = numa_rules.warning(member.template.pod, member.intent.numa, numa_sizes)
        if too_large is not None:
            warnings.append(f"{member.template.path or 'the pod'} {too_large}")
    return Findings(tuple(problems), tuple(warnings))


def size_from(owner: Json | None, name: str) -> int | None:
    """The members of gang `name` that the owner makes at one time, where it says a number."""
    counts = [
        member.template.count
        for member in (members(owner) if owner is not None else ())
        if member.intent.gang is not None and member.intent.gang.name == name
    ]
    return _sum(counts) if counts else None


def _read(template: PodTemplate) -> Intent:
    """The template's intent, with problems placed in the object that holds it."""
    found = intent.read(template.pod)
    if not found.problems:
        return found
    problems = tuple(replace(row, path=template.place(row.path)) for row in found.problems)
    return replace(found, problems=problems)


def _by_gang(found: Iterable[Member]) -> dict[str, list[tuple[Member, Gang]]]:
    """Gang name -> its members with their membership, in the object's order."""
    gangs: dict[str, list[tuple[Member, Gang]]] = {}
    for member in found:
        gang = member.intent.gang
        if gang is not None:
            gangs.setdefault(gang.name, []).append((member, gang))
    return gangs


def _check_gang(
    group: Sequence[tuple[Member, Gang]],
    owner: Json | None,
    problems: list[Problem],
    warnings: list[str],
) -> None:
    sized = [(one, gang.min_available) for one, gang in group if gang.min_available is not None]
    if not sized:
        _check_unsized(group, owner, problems, warnings)
        return
    first, size = sized[0]
    for member, other in sized[1:]:
        if other != size:
            problems.append(
                Problem(
                    "gang-members-disagree",
                    _path(member, vocabulary.GANG_MIN_AVAILABLE_LABEL),
                    f"min-available is {size} at {first.template.path} "
                    f"and {other} at {member.template.path}",
                    "give every member of the group the same min-available",
                )
            )
    total = _sum([member.template.count for member, _ in group])
    is_workload = group[0][0].template.path != ""
    elastic = any(member.template.elastic for member, _ in group)
    if is_workload and not elastic and total is not None and size > total:
        problems.append(
            Problem(
                "gang-size",
                _path(first, vocabulary.GANG_MIN_AVAILABLE_LABEL),
                f"{vocabulary.GANG_MIN_AVAILABLE_LABEL} is {size} but the workload makes "
                f"{total} pods of group {group[0][1].name!r} at a time",
                f"lower min-available to {total} or less, or run {size} pods at a time",
            )
        )


def _check_unsized(
    group: Sequence[tuple[Member, Gang]],
    owner: Json | None,
    problems: list[Problem],
    warnings: list[str],
) -> None:
    """Nobody in the group says a size: somebody else must, or it is named for locality only."""
    member, gang = group[0]
    if gang.size_stands_elsewhere or _is_broken(group):
        return
    total = (
        _sum([one.template.count for one, _ in group])
        if member.template.path
        else size_from(owner, gang.name)
    )
    if total is not None:
        return
    if gang.is_locality_group:
        warnings.append(
            f"group {gang.name!r} has no size: its pods are kept close but not held back; "
            f"set {vocabulary.GANG_MIN_AVAILABLE_LABEL} to place them all or none"
        )
        return
    problems.append(
        Problem(
            "gang-size",
            _path(member, gang.name_key.name, gang.name_key.place),
            f"group {gang.name!r} is named without a size",
            f"add the label {vocabulary.GANG_MIN_AVAILABLE_LABEL} "
            "with the number of pods that must start together",
        )
    )


def _is_broken(group: Sequence[tuple[Member, Gang]]) -> bool:
    """A size was written but could not be read: that problem is reported already."""
    return any(
        problem.rule == "gang-size" for member, _ in group for problem in member.intent.problems
    )


def _check_mixed(found: Sequence[Member], warnings: list[str]) -> None:
    inside = [member.template.path for member in found if member.intent.gang is not None]
    outside = [member.template.path for member in found if member.intent.gang is None]
    if inside and outside:
        warnings.append(
            f"{', '.join(outside)} belongs to no group while {', '.join(inside)} does: "
            "its pods start on their own"
        )


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _path(member: Member, key: str, place: str = "labels") -> str:
    return member.template.place(f"metadata.{place}['{key}']")
