"""
Judges one object after another of a request, and gathers what was found.

    round:  matchConditions --> classification --> defaults --writes?--> next round
    then:   validations on the object as it would be stored --fails?--> exceptions --> Failure

Rounds go on until policies have nothing left to write, so that judging the result anew writes
nothing; policies that undo each other's writes never settle, and that is a failure.

What an expression without a value means is its policy's failurePolicy: a failure of its rule, or
nothing but a note for the audit log. Two cases differ, as in Kubernetes' own policies: a
matchCondition that is false beats one that has no value, and an exception whose condition has no
value excepts nothing.

What policies say of a pod template is advice, except for the limits of a tenant: those refuse the
workload itself, unless an update finds them exceeded already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from policies.cel.protocol import EvaluationError
from policies.engine import classify, tenant_limits
from policies.engine.compiled import (
    ClassifyRule,
    Compiled,
    CompiledPolicy,
    CompiledValidation,
    Joined,
    Setting,
)
from policies.engine.defaults import Draft, Path, at, steps
from policies.engine.policyset import PolicyTables
from policies.engine.request import AdmissionRequest
from policies.engine.result import (
    BUILTIN,
    Conflict,
    ExemptedFailure,
    Failure,
    Injection,
    Outcome,
    PodClass,
    Skipped,
    TenantIdentity,
)
from policies.engine.runner import Runner
from policies.engine.variables import CelVariables, reached
from policies.json_fields import Json, mapping
from policies.pods.intent import Intent

_ROUNDS: Final = 5
_LONGEST_MESSAGE: Final = 5120  # bytes, as Kubernetes has it for messageExpression


@dataclass(frozen=True, slots=True)
class EvaluatedObject:
    """One object to judge: the request's own, or a pod that one of its templates becomes."""

    object: Json | None
    policies: tuple[CompiledPolicy, ...]
    is_pod: bool
    path: str = ""
    bare: bool = False
    """Labels and annotations stand at `path` itself, not in a `metadata` below it."""
    advisory: bool = False
    judged: frozenset[str] = frozenset()
    """Policies whose validations have judged the object that holds this pod."""
    asked: Intent | None = None
    """What the author of a template asks for, with the size that the owner gives its gang."""
    before: Intent | None = None
    """The same before an update."""


@dataclass(slots=True)
class _Evaluation:
    """One pass over the policies, with the object as the pass found it."""

    runner: Runner
    facts: CelVariables
    matched: list[CompiledPolicy] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    pod: PodClass | None = None


@dataclass(slots=True)
class ObjectEvaluator:
    """Judges the objects of one request, and gathers what was found."""

    admission: AdmissionRequest
    tables: PolicyTables
    who: TenantIdentity
    now: datetime
    inject: bool
    validate: bool
    params: Json | None = None
    policies: dict[str, None] = field(default_factory=dict)
    pods: list[PodClass] = field(default_factory=list)
    injections: list[Injection] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    excepted: list[ExemptedFailure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def judge(self, subject: EvaluatedObject) -> Json | None:
        """The object with all writes; failures and the rest are gathered here."""
        final, obj = self._settle(subject)
        self.policies.update(dict.fromkeys(policy.name for policy in final.matched))
        if final.pod is not None:
            self.pods.append(final.pod)
        self.conflicts += [row for row in final.conflicts if row not in self.conflicts]
        self.skipped += final.skipped
        self.failures += final.failures
        for policy in final.matched if self.validate else ():
            self._validate(policy, final, subject)
        return obj

    # --- rounds ---

    def _settle(self, subject: EvaluatedObject) -> tuple[_Evaluation, Json | None]:
        """Rounds until nothing is left to write; a template gets its writes when it is a pod."""
        obj = subject.object
        conflicts: list[Conflict] = []
        injections: list[Injection] = []
        for _ in range(_ROUNDS):
            found = self._round(subject, obj)
            if obj is None or not self._writes(subject):
                return found, obj
            draft = self._defaults(found, subject, obj)
            conflicts += [row for row in draft.conflicts if row not in conflicts]
            if not draft.injections:
                break
            written = {row.path for row in draft.injections if row.path[-1] != "-"}
            injections = [row for row in injections if row.path not in written]
            injections += draft.injections
            obj = draft.object
        else:
            found.failures.append(_placed(_unsettled(draft.injections), subject))
        found.conflicts += conflicts
        if not subject.advisory:
            self.injections += injections
        return found, obj

    def _writes(self, subject: EvaluatedObject) -> bool:
        """Pods are written to when they are made, and never later."""
        created = self.admission.operation == "CREATE" and not self.admission.subresource
        return subject.advisory or (self.inject and created)

    def _round(self, subject: EvaluatedObject, obj: Json | None) -> _Evaluation:
        facts = CelVariables(self.admission, self.who, self.tables, obj, is_pod=subject.is_pod)
        values = facts.values(subject.policies, self.params)
        found = _Evaluation(Runner(values, view=reached(subject.policies, self.validate)), facts)
        found.matched = [
            policy
            for policy in subject.policies
            if not policy.conditions or self._matches(policy, found, subject)
        ]
        if subject.is_pod and self.admission.operation in ("CREATE", "UPDATE"):
            self._classify(found, subject, values["workload"] is not None)
        return found

    def _matches(
        self, policy: CompiledPolicy, found: _Evaluation, subject: EvaluatedObject
    ) -> bool:
        """One false condition passes the policy by; only then do errors count."""
        found.runner.enter(policy)
        error: tuple[Compiled, EvaluationError] | None = None
        for condition in policy.conditions:
            try:
                if not found.runner.truth(condition):
                    return False
            except EvaluationError as exc:
                error = error or (condition, exc)
        if error is None:
            return True
        rule, message = error[0].field, error[1].message
        if policy.fails_closed:
            text = f"matchCondition cannot be evaluated: {message}"
            found.failures.append(
                Failure(
                    policy.name,
                    rule,
                    text,
                    path=subject.path,
                    actions=policy.strictest,
                    advisory=subject.advisory,
                )
            )
        else:
            found.skipped.append(Skipped(policy.name, rule, message))
        return False

    def _classify(self, found: _Evaluation, subject: EvaluatedObject, bind: bool) -> None:
        pod = found.facts.pod

        def holding(
            policy: CompiledPolicy, choices: Sequence[ClassifyRule], first: Joined
        ) -> Iterator[ClassifyRule]:
            found.runner.enter(policy)
            known = found.runner.at_once(first)
            start = known if isinstance(known, int) else 0
            for index in range(start, len(choices)) if start >= 0 else ():
                choice = choices[index]
                if index == known or self._holds(policy, choice.when, found, subject):
                    yield choice

        type_, failures = classify.workload_type(pod, found.matched, holding)
        if bind:
            found.runner.bind("workload", found.facts.workload(type_.value, ""))
        tier, more, conflicts = classify.hardware_tier(
            pod, self.who.tier, self.tables, found.matched, holding
        )
        if bind and tier is not None:
            found.runner.bind("workload", found.facts.workload(type_.value, tier.value))
        if self.admission.operation == "CREATE" or subject.advisory:
            found.failures += [_placed(row, subject) for row in failures + more]
        found.conflicts += conflicts
        found.pod = PodClass(subject.path, type_, tier)

    def _holds(
        self, policy: CompiledPolicy, when: Compiled, found: _Evaluation, subject: EvaluatedObject
    ) -> bool:
        found.runner.enter(policy)
        try:
            return found.runner.truth(when)
        except EvaluationError as exc:
            self._no_value(policy, when.field, exc, found, subject)
            return False

    def _no_value(
        self,
        policy: CompiledPolicy,
        rule: str,
        error: EvaluationError,
        found: _Evaluation,
        subject: EvaluatedObject,
    ) -> None:
        if not policy.fails_closed:
            found.skipped.append(Skipped(policy.name, rule, error.message))
            return
        text = f"cannot be evaluated: {error.message}"
        failure = Failure(policy.name, rule, text, path=subject.path, advisory=subject.advisory)
        if failure not in found.failures:
            found.failures.append(failure)

    # --- defaults ---

    def _defaults(self, found: _Evaluation, subject: EvaluatedObject, obj: Json) -> Draft:
        draft = Draft(obj)
        bases: list[Path] = [()] if subject.is_pod else self._bases(obj)
        for policy in found.matched:
            for rule in policy.defaults:
                if rule.when is not None and not self._holds(policy, rule.when, found, subject):
                    continue
                for setting in rule.settings:
                    said = self._value(policy, rule.rule, setting, found, subject)
                    write = Injection((), said, policy.name, rule.rule, rule.override)
                    for base in bases if said is not None else ():
                        getattr(draft, setting.shape)(base, setting.path, write)
            tenant_limits.defaults(policy, draft, bases)
        return draft

    def _bases(self, obj: Json) -> list[Path]:
        """Where the pods of the object stand; parts that are no pod templates are left alone."""
        paths = [steps(template.path) for template in self.admission.templates]
        return [path for path in paths if isinstance(mapping(at(obj, path)).get("spec"), dict)]

    def _value(
        self,
        policy: CompiledPolicy,
        rule: str,
        setting: Setting,
        found: _Evaluation,
        subject: EvaluatedObject,
    ) -> Any:
        if not isinstance(setting.value, Compiled):
            return setting.value
        found.runner.enter(policy)
        try:
            return tenant_limits.checked_value(setting, found.runner.value(setting.value))
        except EvaluationError as exc:
            self._no_value(policy, rule, exc, found, subject)
            return None

    # --- validations ---

    def _validate(
        self, policy: CompiledPolicy, found: _Evaluation, subject: EvaluatedObject
    ) -> None:
        runner, name = found.runner, policy.name
        runner.enter(policy)
        rules = policy.validations if name not in subject.judged else ()
        if rules and runner.at_once(policy.all_pass) is True:
            self.outcomes += policy.all_passed
            rules = ()
        for rule in rules:
            error: EvaluationError | None = None
            try:
                passed: bool | None = runner.truth(rule.expression)
            except EvaluationError as exc:
                passed, error = None, exc
            self.outcomes.append(Outcome(name, rule.rule, passed))
            if passed:
                continue
            if error is not None and not policy.fails_closed:
                self.skipped.append(Skipped(name, rule.rule, error.message))
                continue
            text = (
                self._message(policy, rule, found)
                if error is None
                else f"cannot be evaluated: {error.message}"
            )
            failure = Failure(
                name,
                rule.rule,
                text,
                rule.reason,
                subject.path,
                actions=rule.actions,
                advisory=subject.advisory,
            )
            self._fail(policy, failure, found)
        made = self.admission.operation == "CREATE" or subject.advisory
        if subject.is_pod and made and tenant_limits.has_limits(policy):
            self._limit(policy, found, subject)

    def _limit(self, policy: CompiledPolicy, found: _Evaluation, subject: EvaluatedObject) -> None:
        """What a template's author asks for is refused; what defaults would add is advice."""
        asked, before = subject.asked or found.facts.intent, subject.before
        known = list(tenant_limits.limits(policy, before)) if before is not None else []
        binding = [row for row in tenant_limits.limits(policy, asked) if row not in known]
        for failure in dict.fromkeys((*binding, *tenant_limits.limits(policy, found.facts.intent))):
            placed = _placed(failure, subject)
            self._fail(policy, replace(placed, advisory=failure not in binding), found)

    def _message(self, policy: CompiledPolicy, rule: CompiledValidation, found: _Evaluation) -> str:
        if rule.message_expression is None:
            return rule.message
        try:
            said = found.runner.value(rule.message_expression)
        except EvaluationError as exc:
            field_name = rule.message_expression.field
            self.skipped.append(Skipped(policy.name, field_name, exc.message))
            return rule.message
        text = said.strip() if isinstance(said, str) else ""
        usable = text and text.isprintable() and len(text.encode()) <= _LONGEST_MESSAGE
        return text if usable else rule.message

    def _fail(self, policy: CompiledPolicy, failure: Failure, found: _Evaluation) -> None:
        """Count the failure, unless an exception of the same policy covers it."""
        for exception in policy.exceptions:
            if not exception.covers(failure.rule) or exception.model.expired(self.now):
                continue
            try:
                holds = found.runner.truth(exception.when)
            except EvaluationError as exc:
                self.skipped.append(Skipped(policy.name, exception.when.field, exc.message))
                continue
            if holds:
                self.excepted.append(
                    ExemptedFailure(
                        policy.name, failure.rule, exception.model.name, exception.model.reason
                    )
                )
                return
        self.failures.append(failure)


def _placed(failure: Failure, subject: EvaluatedObject) -> Failure:
    """The failure as seen from the object that holds the pod."""
    field_path = failure.path.removeprefix("metadata.") if subject.bare else failure.path
    path = ".".join(part for part in (subject.path, field_path) if part)
    return Failure(
        failure.policy,
        failure.rule,
        failure.message,
        failure.reason,
        path,
        failure.fix,
        failure.actions,
        subject.advisory,
    )


def _unsettled(last: Sequence[Injection]) -> Failure:
    rules = sorted({f"{injection.policy}/{injection.rule}" for injection in last})
    return Failure(
        BUILTIN,
        "defaults-settle",
        f"the defaults {', '.join(rules)} change what each other wrote, without end",
        reason="Forbidden",
        fix="ask the cluster admin to remove override from one of them",
    )
