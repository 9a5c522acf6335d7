"""
Whether the pods that an object is or makes can be obeyed: gangs and what their members say.

    templates --intent.read--> problems of each --group by gang--> problems of the gang
                                                              \\-> warnings

`intent` reads one pod; this module holds several against each other and against the number of
pods that their owner will make. Pure; every finding is reported, not only the first.

A gang may span owners: templates that say their role, all of one, declare that the other role is
made elsewhere. What a controller makes is a part of what was judged at the controller: a ReplicaSet
in the middle of a rollout is smaller than its gang. A workload scaled to nothing makes no gang, so
none of it can wait in vain.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies import vocabulary
from policies.checks import numa
from policies.json_fields import Json
from policies.pods.intent import Gang, Problem
from policies.pods.members import Member, _sum, size_from


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth knowing that refuses nothing."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found: problems refuse the object, notes travel with the answer as warnings."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(note.message for note in self.notes)


def check(
    found: Sequence[Member],
    *,
    owner: Json | None = None,
    numa_sizes: Sequence[numa.Size] = (),
) -> Findings:
    """
    Judge the templates of one object.

    `owner` is the controller of a pod, where it has one; `numa_sizes` are the largest NUMA nodes
    that are known.
    """
    problems = [problem for member in found for problem in member.intent.problems]
    notes: list[Note] = []
    for group in _by_gang(found).values():
        _check_gang(group, owner, problems, notes)
        _check_order(group, notes)
    _check_mixed(found, notes)
    for member in found:
        too_large = numa.warning(member.template.pod, member.intent.numa, numa_sizes)
        if too_large is not None:
            where = member.template.path or "the pod"
            notes.append(Note("numa-too-large", f"{where} {too_large}"))
    return Findings(tuple(problems), tuple(notes))


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
    notes: list[Note],
) -> None:
    sized = [(one, gang.min_available) for one, gang in group if gang.min_available is not None]
    if not sized:
        _check_unsized(group, owner, problems, notes)
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
    made = _makes(group)
    if made and size > made:
        _too_few(group, first, size, made, problems, notes)


def _makes(group: Sequence[tuple[Member, Gang]]) -> int | None:
    """Pods of the gang that a workload makes at one time; None where more may come from others."""
    first = group[0][0]
    elastic = any(member.template.elastic for member, _ in group)
    if elastic or first.owned or first.template.path == "":
        return None
    return _sum([member.template.count for member, _ in group])


def _too_few(
    group: Sequence[tuple[Member, Gang]],
    first: Member,
    size: int,
    made: int,
    problems: list[Problem],
    notes: list[Note],
) -> None:
    name = group[0][1].name
    if _is_one_side(group):
        text = f"makes {made} of the {size} pods of group {name!r}"
        members = "member" if size - made == 1 else f"{size - made} members"
        rest = f"the other {members} must come from elsewhere"
        notes.append(Note("gang-elsewhere", f"{first.template.path} {text}: {rest}"))
        return
    problems.append(
        Problem(
            "gang-size",
            _path(first, vocabulary.GANG_MIN_AVAILABLE_LABEL),
            f"{vocabulary.GANG_MIN_AVAILABLE_LABEL} is {size} but the workload makes "
            f"{made} pods of group {name!r} at a time",
            f"lower min-available to {made} or less, or run {size} pods at a time; where others "
            f"make the rest, label the template with its {vocabulary.GANG_ROLE_LABEL}",
        )
    )


def _is_one_side(group: Sequence[tuple[Member, Gang]]) -> bool:
    """Whether the templates say their role, and none of them has the other one."""
    said = [_said_role(member) for member, _ in group]
    roles = {role or vocabulary.GANG_ROLES[-1] for role in said}
    return any(said) and len(roles) == 1


def _said_role(member: Member) -> str | None:
    metadata = member.template.pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if not isinstance(labels, Mapping):
        return None
    role = labels.get(vocabulary.GANG_ROLE_LABEL)
    if role is None:
        role = vocabulary.SPARK_ROLES.get(str(labels.get(vocabulary.SPARK_ROLE_LABEL)))
    return role if role in vocabulary.GANG_ROLES else None


def _check_order(group: Sequence[tuple[Member, Gang]], notes: list[Note]) -> None:
    """Pods that are made one after another, each once the one before runs, never wait together."""
    waiting = [member for member, _ in group if member.template.together]
    size = next((gang.min_available for _, gang in group if gang.min_available), None)
    if waiting and (size or _makes(group) or 1) > 1:
        together = waiting[0].template.together
        notes.append(
            Note(
                "gang-order",
                f"the pods of group {group[0][1].name!r} start together or not at all, but their "
                f"workload starts one after another: set {together}",
            )
        )


def _check_unsized(
    group: Sequence[tuple[Member, Gang]],
    owner: Json | None,
    problems: list[Problem],
    notes: list[Note],
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
        text = "its pods are kept close but not held back"
        fix = f"set {vocabulary.GANG_MIN_AVAILABLE_LABEL} to place them all or none"
        notes.append(Note("gang-locality", f"group {gang.name!r} has no size: {text}; {fix}"))
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
        problem.rule in ("gang-size", "text")
        for member, _ in group
        for problem in member.intent.problems
    )


def _check_mixed(found: Sequence[Member], notes: list[Note]) -> None:
    main = [member for member in found if not member.template.aside]
    inside = [member.template.path for member in main if member.intent.gang is not None]
    outside = [member.template.path for member in main if member.intent.gang is None]
    if inside and outside:
        said = f"{', '.join(outside)} belongs to no group while {', '.join(inside)} does"
        notes.append(Note("gang-mixed", f"{said}: its pods start on their own"))


def _path(member: Member, key: str, place: str = "labels") -> str:
    return member.template.place(f"metadata.{place}['{key}']")
