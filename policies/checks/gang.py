"""
Built-in check: gang size and roles of the pods that an object is or makes.

    templates --intent.read--> problems of each --group by gang--> problems of the gang
                                                              \\-> warnings

`intent` reads one pod; this module compares several with each other and with the number of pods
that their owner will make. It is pure and reports every problem, not only the first.

A gang may span owners: templates that all name the same role declare that other objects make the
other role. The check covers a controller's pods at the controller itself: a ReplicaSet in the
middle of a rollout is smaller than its gang. A workload scaled to 0 makes no gang.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies import bounds, vocabulary
from policies.checks import numa
from policies.json_fields import Json
from policies.pods.intent import Gang, Problem
from policies.pods.members import Member, size_from, total_count


@dataclass(frozen=True, slots=True)
class Note:
    """A warning that denies nothing."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Problems deny the object, notes travel with the response as warnings."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(note.message for note in self.notes)


def check(
    members: Sequence[Member],
    *,
    owner: Json | None = None,
    numa_sizes: Sequence[numa.Size] = (),
    largest: int = bounds.DEFAULT_GANG_SIZE,
) -> Findings:
    """
    Check the templates of one object.

    `owner` is the controller of a pod, where it has one; `numa_sizes` are the largest NUMA nodes
    that are known; `largest` is the largest gang that the policies allow.
    """
    problems = [problem for member in members for problem in member.intent.problems]
    notes: list[Note] = []
    for group in _by_gang(members).values():
        _check_gang(group, owner, largest, problems, notes)
        _check_order(group, notes)
    _check_mixed(members, notes)
    for member in members:
        too_large = numa.warning(member.template.pod, member.intent.numa, numa_sizes)
        if too_large is not None:
            where = member.template.path or "the pod"
            notes.append(Note("numa-too-large", f"{where} {too_large}"))
    return Findings(tuple(problems), tuple(notes))


def _by_gang(members: Iterable[Member]) -> dict[str, list[tuple[Member, Gang]]]:
    """Gang name -> its members with their membership, in the object's order."""
    gangs: dict[str, list[tuple[Member, Gang]]] = {}
    for member in members:
        gang = member.intent.gang
        if gang is not None:
            gangs.setdefault(gang.name, []).append((member, gang))
    return gangs


def _check_gang(
    group: Sequence[tuple[Member, Gang]],
    owner: Json | None,
    largest: int,
    problems: list[Problem],
    notes: list[Note],
) -> None:
    sized = [
        (member, gang.min_available) for member, gang in group if gang.min_available is not None
    ]
    if not sized:
        _check_unsized(group, owner, largest, problems, notes)
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
    if size > largest and not _is_broken(group):
        path = _path(first, vocabulary.GANG_MIN_AVAILABLE_LABEL)
        text = f"{vocabulary.GANG_MIN_AVAILABLE_LABEL} is {size}"
        problems.append(too_large(path, text, largest))
    created = _created(group)
    if created and size > created:
        _too_few(group, first, size, created, problems, notes)


def too_large(path: str, found: str, largest: int) -> Problem:
    """The problem of a gang that is larger than the policies allow."""
    return Problem(
        "bounds",
        path,
        f"{found}, want at most {largest} pods in a gang",
        f"lower it, or have a PlatformPolicy allow larger gangs (spec.gang.maxSize, at most"
        f" {bounds.GANG_SIZE.limit})",
    )


def _created(group: Sequence[tuple[Member, Gang]]) -> int | None:
    """Pods of the gang that a workload runs at a time; None where others may create more."""
    first = group[0][0]
    elastic = any(member.template.elastic for member, _ in group)
    if elastic or first.owned or first.template.path == "":
        return None
    return total_count([member.template.count for member, _ in group])


def _too_few(
    group: Sequence[tuple[Member, Gang]],
    first: Member,
    size: int,
    created: int,
    problems: list[Problem],
    notes: list[Note],
) -> None:
    name = group[0][1].name
    if _is_one_side(group):
        text = f"makes {created} of the {size} pods of group {name!r}"
        members = "member" if size - created == 1 else f"{size - created} members"
        rest = f"the other {members} must come from elsewhere"
        notes.append(Note("gang-elsewhere", f"{first.template.path} {text}: {rest}"))
        return
    problems.append(
        Problem(
            "gang-size",
            _path(first, vocabulary.GANG_MIN_AVAILABLE_LABEL),
            f"{vocabulary.GANG_MIN_AVAILABLE_LABEL} is {size} but the workload makes "
            f"{created} pods of group {name!r} at a time",
            f"lower min-available to {created} or less, or run {size} pods at a time; where others "
            f"make the rest, label the template with its {vocabulary.GANG_ROLE_LABEL}",
        )
    )


def _is_one_side(group: Sequence[tuple[Member, Gang]]) -> bool:
    """Whether the templates name their role, and none of them has the other one."""
    explicit = [_explicit_role(member) for member, _ in group]
    roles = {role or vocabulary.GANG_ROLES[-1] for role in explicit}
    return any(explicit) and len(roles) == 1


def _explicit_role(member: Member) -> str | None:
    metadata = member.template.pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if not isinstance(labels, Mapping):
        return None
    role = labels.get(vocabulary.GANG_ROLE_LABEL)
    if role is None:
        role = vocabulary.SPARK_ROLES.get(str(labels.get(vocabulary.SPARK_ROLE_LABEL)))
    return role if role in vocabulary.GANG_ROLES else None


def _check_order(group: Sequence[tuple[Member, Gang]], notes: list[Note]) -> None:
    """Pods that start one after another, each once the one before runs, never wait together."""
    ordered = [member for member, _ in group if member.template.together]
    size = next((gang.min_available for _, gang in group if gang.min_available), None)
    if ordered and (size or _created(group) or 1) > 1:
        together = ordered[0].template.together
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
    largest: int,
    problems: list[Problem],
    notes: list[Note],
) -> None:
    """No template has a size: a PodGroup or the owner gives it, or the group is for locality."""
    member, gang = group[0]
    if gang.size_in_pod_group or _is_broken(group):
        return
    total = (
        total_count([member.template.count for member, _ in group])
        if member.template.path
        else size_from(owner, gang.name)
    )
    if total is not None:
        if total > largest:
            path = _path(member, gang.name_key.name, gang.name_key.place)
            text = f"the workload makes {total} pods of group {gang.name!r}, which has no size"
            problems.append(too_large(path, text, largest))
        return
    if gang.is_locality_group:
        text = "its pods are placed close together, each as soon as it fits"
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
        problem.rule in ("gang-size", "text", "bounds")
        for member, _ in group
        for problem in member.intent.problems
    )


def _check_mixed(members: Sequence[Member], notes: list[Note]) -> None:
    main = [member for member in members if not member.template.auxiliary]
    inside = [member.template.path for member in main if member.intent.gang is not None]
    outside = [member.template.path for member in main if member.intent.gang is None]
    if inside and outside:
        text = f"{', '.join(outside)} belongs to no group while {', '.join(inside)} does"
        notes.append(Note("gang-mixed", f"{text}: its pods start on their own"))


def _path(member: Member, key: str, place: str = "labels") -> str:
    return member.template.place(f"metadata.{place}['{key}']")
