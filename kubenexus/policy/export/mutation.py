"""
A policy's defaults as one JSON Patch expression of a MutatingAdmissionPolicy.

    parents that are missing + (when ? unset fields of default 0 : []) + (… of default 1) + …

All defaults are evaluated on the unchanged object, as in one round of the engine: hence one
expression, in which a later default skips a field that an earlier one writes. A
policy whose defaults read what defaults write is evaluated as often as it has defaults, which
settles them like the engine's rounds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kubenexus.policy.export.cel import CelWriter, NotExportable, literal
from policies import vocabulary
from policies.engine.compiled import Compiled, CompiledDefault, Setting
from policies.vocabulary import Key

_MOST_ROUNDS: Final = 5
_FAMILIES: Final = (
    vocabulary.GANG_NAME_FAMILIES,
    vocabulary.GANG_MIN_AVAILABLE_FAMILIES,
    vocabulary.NUMA_POLICY_FAMILIES,
    vocabulary.VRAM_FAMILIES,
)
# Worked out from the field by the API server before policies are asked, and again after them: what
# it finds then must not contradict the new value.
_WORKED_OUT: Final = {"priorityClassName": ("priority", "preemptionPolicy")}


@dataclass(frozen=True, slots=True)
class NotExported:
    """A part that only KubeNexus evaluates, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: unless it is set already, where, and what; `parent` makes the way there."""

    field: str
    condition: str
    patch: str
    parent: str = ""
    stale: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        body = " + ".join([f"[{self.patch}]", *map(_removed, self.stale)])
        return f"({self.condition} ? {body} : [])" if self.condition else body


@dataclass(slots=True)
class _Group:
    """The writes of one default, and the texts of what they depend on."""

    when: str
    read: list[str] = field(default_factory=list)
    writes: list[_Write] = field(default_factory=list)

    @property
    def text(self) -> str:
        body = " +\n  ".join(write.text for write in self.writes)
        return f"(({self.when}) ?\n  {body} : [])" if self.when else body

    def reads(self, other: "_Group") -> bool:
        """Whether the other default may write something that this one reads."""
        words = {word for text in self.read for word in re.findall(r"\w+", text)}
        return any(write.field in words for write in other.writes)


@dataclass(slots=True)
class Mutation:
    """Collects the defaults of one policy."""

    writer: CelWriter
    left: list[NotExported] = field(default_factory=list)
    _groups: list[_Group] = field(default_factory=list)
    _written: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    def add(self, default: CompiledDefault) -> None:
        """A default, or the parts of it that can be exported."""
        group = _Group("")
        try:
            if default.when is not None:
                group.when = self._exported_text(default.when, group)
        except NotExportable as exc:
            self.left.append(NotExported(default.rule, f"`when` {exc}"))
            return
        for setting in default.settings:
            try:
                group.writes.append(self._write(default, setting, group))
            except NotExportable as exc:
                self.left.append(NotExported(f"{default.rule} {'.'.join(setting.path)}", str(exc)))
        if group.writes:
            self._groups.append(group)

    def expressions(self) -> list[str]:
        """The mutations in order; none where there is nothing to write."""
        if not self._groups:
            return []
        writes = [write for group in self._groups for write in group.writes]
        parents = dict.fromkeys(write.parent for write in writes if write.parent)
        text = " +\n".join([*parents, *(group.text for group in self._groups)])
        return [text] * (min(len(self._groups), _MOST_ROUNDS) if self._is_chained() else 1)

    def _is_chained(self) -> bool:
        return any(
            group.reads(other)
            for group in self._groups
            for other in self._groups
            if group is not other
        )

    def _exported_text(self, compiled: Compiled, group: _Group) -> str:
        text = self.writer.expression(compiled.program.source)
        group.read += [text, *(row["expression"] for row in self.writer.variables())]
        return text

    def _write(self, default: CompiledDefault, setting: Setting, group: _Group) -> _Write:
        if setting.shape == "resource":
            raise NotExportable("is written container by container, held against its limits")
        value, nullable = self._value(setting, group)
        target = setting.path if setting.shape == "value" else (*setting.path, value)
        conditions = [f"!({earlier})" for earlier in self._earlier(target)]
        if nullable:
            conditions.append(f"dyn({value}) != null")
        if setting.shape == "item":
            write = _item(setting.path, value, conditions)
        else:
            write = _value(setting.path, value, conditions, override=default.override)
        self._written.setdefault(target, []).append("" if nullable else group.when or "true")
        return write

    def _value(self, setting: Setting, group: _Group) -> tuple[str, bool]:
        """The value as CEL, and whether it may be null, which writes nothing."""
        if not isinstance(setting.value, Compiled):
            return literal(setting.value), False
        text = self._exported_text(setting.value, group)
        return f"({text})", not setting.value.program.result_type.startswith(("string", "map<"))

    def _earlier(self, target: tuple[str, ...]) -> Sequence[str]:
        """Conditions under which an earlier default of the policy has written the field."""
        conditions = self._written.get(target, [])
        if "true" in conditions:
            raise NotExportable("an earlier default of this policy always writes it")
        if "" in conditions:
            raise NotExportable("an earlier default may write it, or nothing")
        return conditions


def _value(path: tuple[str, ...], value: str, conditions: list[str], *, override: bool) -> _Write:
    if len(path) == 2:  # a field of the pod's spec
        unset = [] if override else [_no_field(path)]
        stale = _WORKED_OUT.get(path[1], ())
        condition = _all([*conditions, *unset])
        return _Write(path[1], condition, _add(_pointer(path), value), stale=stale)
    parent, key = path[:2], path[2]
    spellings = next((row for row in _FAMILIES if Key(path[1], key) in row), ())
    if override and spellings:
        raise NotExportable("has several spellings, of which override replaces those in use")
    unset = [_no_key((path[0], *place)) for place in spellings or (Key(path[1], key),)]
    pointer = f"{_pointer(parent)[:-1]}/' + jsonpatch.escapeKey({literal(key)})"
    condition = _all(conditions if override else [*conditions, *unset])
    return _Write(path[1], condition, _add(pointer, value), _parent(parent, "{}"))


def _item(path: tuple[str, ...], value: str, conditions: list[str]) -> _Write:
    place = f"object.{'.'.join(path)}"
    absent = f"!(has({place}) && {place}.exists(item, item == {value}))"
    pointer = f"{_pointer(path)[:-1]}/-'"
    return _Write(path[1], _all([*conditions, absent]), _add(pointer, value), _parent(path, "[]"))


def _no_field(path: tuple[str, ...]) -> str:
    place = f"object.{'.'.join(path)}"
    if path[-1] == "affinity":
        return f"!has({place})"
    idle = "'', 'default-scheduler'" if path[-1] == "schedulerName" else "''"
    return f"(!has({place}) || {place} in [{idle}])"


def _no_key(path: tuple[str, ...]) -> str:
    place, key = f"object.{path[0]}.{path[1]}", literal(path[2])
    return f"!(has({place}) && {key} in {place} && {place}[{key}] != '')"


def _parent(path: tuple[str, ...], empty: str) -> str:
    place = f"object.{'.'.join(path)}"
    return f"(has({place}) ? [] : [{_add(_pointer(path), empty)}])"


def _pointer(path: tuple[str, ...]) -> str:
    return f"'/{'/'.join(path)}'"


def _add(pointer: str, value: str) -> str:
    return f"JSONPatch{{op: 'add', path: {pointer}, value: {value}}}"


def _removed(name: str) -> str:
    remove = f"JSONPatch{{op: 'remove', path: '/spec/{name}'}}"
    return f"(has(object.spec.{name}) ? [{remove}] : [])"


def _all(conditions: Sequence[str]) -> str:
    return " && ".join(conditions)
