"""
`policy export --vap`: the part of policies that Kubernetes can evaluate itself, and the rest.

    validations --by action--> ValidatingAdmissionPolicy + Binding, one for each set of actions
    defaults    -------------> MutatingAdmissionPolicy + Binding, for pods at their creation
    the rest    -------------> NotExported: what, and why

An exported rule decides as KubeNexus does; a rule is exported whole or not at all: one that has an
exception with an end is not exported without the exception. A policy whose conditions cannot be
exported would match too much, so none of it is exported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import yaml

from kubenexus.policy.export.cel import CelWriter, NotExportable
from kubenexus.policy.export.mutation import Mutation, NotExported
from policies.documents.policy import PlatformPolicy, TenantPolicy
from policies.engine import tenant_limits
from policies.engine.compiled import CompiledPolicy, CompiledValidation
from policies.engine.policyset import PolicySet
from policies.json_fields import JsonDict
from policies.pods import workloads

API_VERSION: Final = "admissionregistration.k8s.io/v1"
_POD: Final = ("", "Pod")
_LABELS: Final = {"app.kubernetes.io/managed-by": "kubenexus"}


@dataclass(frozen=True, slots=True)
class Exported:
    """The objects of one policy, and its parts that only KubeNexus evaluates."""

    policy: str
    documents: tuple[JsonDict, ...]
    left: tuple[NotExported, ...]


@dataclass(slots=True)
class _Job:
    """The export of one policy."""

    policy: CompiledPolicy
    now: datetime
    documents: list[JsonDict] = field(default_factory=list)
    left: list[NotExported] = field(default_factory=list)

    def leave(self, rule: str, why: str) -> None:
        self.left.append(NotExported(rule, why))


def export(policies: PolicySet, *, now: datetime) -> tuple[Exported, ...]:
    """Every policy in its order; `now` tells which exceptions are over."""
    return tuple(_export(_Job(policy, now)) for policy in policies.policies)


def _export(job: _Job) -> Exported:
    policy = job.policy
    try:
        conditions = _conditions(policy)
    except NotExportable as exc:
        job.leave("the whole policy", str(exc))
    else:
        _validations(job, conditions)
        _mutations(job, conditions)
    job.left += _tables(policy)
    return Exported(policy.name, tuple(job.documents), tuple(job.left))


def _conditions(policy: CompiledPolicy) -> list[JsonDict]:
    made: list[JsonDict] = []
    for rule in policy.conditions:
        try:
            text = CelWriter(policy).condition(rule.program.source)
        except NotExportable as exc:
            raise NotExportable(f"matchCondition {rule.field} {exc}") from exc
        made.append({"name": rule.field, "expression": text})
    return made


# --- validations ---


def _validations(job: _Job, conditions: list[JsonDict]) -> None:
    policy = job.policy
    rules = _rules_for(policy.model.spec.match_constraints.operations, _kinds(policy))
    by_action: dict[tuple[str, ...], tuple[CelWriter, list[JsonDict]]] = {}
    for rule in policy.validations:
        writer, made = by_action.setdefault(
            tuple(sorted(rule.actions, reverse=True)), (CelWriter(policy), [])
        )
        try:
            made.append(_validation(job, rule, writer))
        except NotExportable as exc:
            job.leave(rule.rule, str(exc))
    for actions, (writer, made) in by_action.items():
        if not made or not rules:
            continue
        suffix = "" if actions == ("Deny",) else f"-{'-'.join(actions).lower()}"
        spec = {
            **_common(policy, conditions, rules, writer),
            "validations": made,
        }
        binding = {"validationActions": list(actions)}
        job.documents += _pair("Validating", f"kubenexus-{policy.name}{suffix}", spec, binding)
    if policy.validations and not rules:
        job.leave("validations", "none of the policy's kinds is shown to admission")


def _validation(job: _Job, rule: CompiledValidation, writer: CelWriter) -> JsonDict:
    text = _excepted(job, rule, writer)
    made: JsonDict = {
        "expression": text,
        "message": f"{rule.rule}: {' '.join(rule.message.split())}",
        "reason": rule.reason,
    }
    if rule.message_expression is not None:
        message = writer.expression(rule.message_expression.program.source)
        made["messageExpression"] = f"'{rule.rule}: ' + ({message})"
    return made


def _excepted(job: _Job, rule: CompiledValidation, writer: CelWriter) -> str:
    """The rule, or one of the exceptions that cover it."""
    policy = job.policy
    text = writer.expression(rule.expression.program.source)
    for exception in policy.exceptions:
        name = exception.model.name
        if not exception.covers(rule.rule) or exception.model.expired(job.now):
            continue
        if exception.model.until is not None:
            raise NotExportable(f"exception {name} has an end, and Kubernetes has no clock for it")
        if not policy.fails_closed:
            raise NotExportable(
                f"exception {name}: with failurePolicy Ignore an exception without a value would"
                " let everything in"
            )
        try:
            when = writer.expression(exception.when.program.source)
        except NotExportable as exc:
            raise NotExportable(f"exception {name} {exc}") from exc
        text = f"({text}) || ({when})"
    return text


# --- defaults ---


def _mutations(job: _Job, conditions: list[JsonDict]) -> None:
    policy = job.policy
    if not policy.defaults:
        return
    if not policy.takes("CREATE"):
        return  # defaults apply at creation only
    rules = _rules_for(("CREATE",), [_POD] if policy.names_kind(*_POD) else [])
    others = sorted(kind for group, kind in _kinds(policy) if (group, kind) != _POD)
    if others:
        job.leave(
            "defaults in pod templates", f"Kubernetes has no common path for those of {others[0]}"
        )
    if not rules:
        return
    mutation = Mutation(CelWriter(policy))
    for default in policy.defaults:
        mutation.add(default)
    job.left += mutation.left
    made = mutation.expressions()
    if made:
        spec = {
            **_common(policy, conditions, rules, mutation.writer),
            "reinvocationPolicy": "IfNeeded",
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in made
            ],
        }
        job.documents += _pair("Mutating", f"kubenexus-{policy.name}", spec, {})


# --- both ---


def _kinds(policy: CompiledPolicy) -> list[tuple[str, str]]:
    """The kinds that the policy names and admission is shown, as (group, kind)."""
    return [key for key in sorted(workloads.KINDS) if policy.names_kind(*key)]


def _rules_for(operations: Sequence[str], kinds: Sequence[tuple[str, str]]) -> list[JsonDict]:
    groups: dict[str, list[str]] = {}
    for group, kind in kinds:
        groups.setdefault(group, []).append(workloads.plural(kind))
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*" if group else "v1"],
            "operations": list(operations),
            "resources": names,
            "scope": "Namespaced",
        }
        for group, names in groups.items()
    ]


def _common(
    policy: CompiledPolicy, conditions: list[JsonDict], rules: list[JsonDict], writer: CelWriter
) -> JsonDict:
    match: JsonDict = {"resourceRules": rules}
    if policy.selector is not None:
        match["namespaceSelector"] = policy.selector.model_dump(
            by_alias=True, exclude_defaults=True, mode="json"
        )
    made: JsonDict = {
        "failurePolicy": policy.model.spec.failure_policy,
        "matchConstraints": match,
    }
    if conditions:
        made["matchConditions"] = conditions
    variables = writer.variables()
    return {**made, "variables": variables} if variables else made


def _pair(kind: str, name: str, spec: JsonDict, binding: JsonDict) -> list[JsonDict]:
    metadata = {"name": name, "labels": _LABELS}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": f"{kind}AdmissionPolicy",
            "metadata": metadata,
            "spec": spec,
        },
        {
            "apiVersion": API_VERSION,
            "kind": f"{kind}AdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, **binding},
        },
    ]


def _tables(policy: CompiledPolicy) -> Iterator[NotExported]:
    """The fields of a policy beside its rules."""
    spec = policy.model.spec
    if spec.classify.workload_type or spec.classify.hardware_tier:
        yield NotExported("classify", "Kubernetes has no classes of pods")
    for exception in policy.exceptions:
        if exception.model.until is None:
            yield NotExported(
                f"audit of exception {exception.model.name}", "Kubernetes has no word for it"
            )
    if policy.names_kind(*_POD) and policy.validations:
        yield NotExported(
            "advice on pod templates", "Kubernetes shows pods to rules for pods, no templates"
        )
    if isinstance(policy.model, PlatformPolicy):
        cluster = policy.model.spec
        if cluster.tiers or cluster.priority_classes:
            yield NotExported("tiers", "Kubernetes has no tiers of tenants")
        if cluster.hardware or cluster.topology_levels:
            yield NotExported("hardware and topology", "the scheduler reads these tables")
    if isinstance(policy.model, TenantPolicy):
        yield from _tenancy(policy, policy.model)


def _tenancy(policy: CompiledPolicy, model: TenantPolicy) -> Iterator[NotExported]:
    spec = model.spec
    if tenant_limits.has_limits(policy):
        yield NotExported(
            "gang and numa limits", "Kubernetes does not know what gang a pod asks for"
        )
    if spec.numa.default is not None or spec.gang.timeout is not None or spec.gang.gate:
        yield NotExported(
            "gang and numa defaults", "Kubernetes does not know what gang a pod asks for"
        )
    if spec.quota.guaranteed or spec.quota.max:
        yield NotExported("quota", "the scheduler keeps it")


# --- as text ---


class _Dumper(yaml.SafeDumper):
    """Multi-line texts as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(exported: Sequence[Exported]) -> str:
    """Documents for `kubectl apply -f -`, the rest as comments above them."""
    parts: list[str] = []
    for policy in exported:
        notes = [
            f"# {policy.policy}: not exported: {left.what}: {left.why}" for left in policy.left
        ]
        parts += ["\n".join(notes) + "\n"] if notes else []
        for document in policy.documents:
            text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=96)
            parts.append(f"---\n{text}")
    return "".join(parts)


def summary(exported: Sequence[Exported]) -> str:
    """One line on how much was exported."""
    whole = sum(1 for policy in exported if policy.documents and not policy.left)
    part = sum(1 for policy in exported if policy.documents and policy.left)
    none = len(exported) - whole - part
    return (
        f"of {len(exported)} policies {whole} are exported whole, {part} in part, {none} not at"
        " all; the comments say why"
    )
