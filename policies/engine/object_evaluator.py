"""
Evaluates the policies of a request on one object after another.

    pass:   matchConditions --> classification --> defaults --writes?--> next pass
    then:   validations on the object as it would be stored --fails?--> exceptions --> Failure

Passes repeat until policies have nothing left to write, so that evaluating the result again writes
nothing. Policies that undo each other's writes never settle, and that is a failure.

The failurePolicy of a policy decides what an expression without a value means: a failure of its
rule, or a note in the audit log. Two cases differ, as in Kubernetes' own policies: a matchCondition
that is false beats one that has no value, and an exception whose condition has no value excepts
nothing.

Failures of a pod template are advice, except for the limits of a tenant: those deny the workload
itself, unless an update finds them exceeded already.
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
from policies.engine.deadline import UNLIMITED, CpuDeadline
from policies.engine.defaults import Draft, Path, at, steps
from policies.engine.policyset import PolicyTables
from policies.engine.request import AdmissionRequest
from policies.engine.result import (
    BUILTIN,
    Conflict,
    EvaluationBuilder,
    ExemptedFailure,
    Failure,
    Injection,
    Outcome,
    PodClass,
    Skipped,
)
from policies.engine.runner import Runner
from policies.engine.variables import CelVariables, reached
from policies.json_fields import Json, mapping
from policies.pods.intent import Intent

_MOST_PASSES: Final = 5
_LONGEST_MESSAGE: Final = 5120  # bytes, as Kubernetes has it for messageExpression


@dataclass(frozen=True, slots=True)
class EvaluatedObject:
    """One object to evaluate: the request's own, or the pod that a template becomes."""

    object: Json | None
    policies: tuple[CompiledPolicy, ...]
    is_pod: bool
    path: str = ""
    bare: bool = False
    """Labels and annotations stand at `path` itself, not in a `metadata` below it."""
    advisory: bool = False
    validated_by: frozenset[str] = frozenset()
    """Policies whose validations have run on the object that holds this pod."""
    intent: Intent | None = None
    """The intent of a template as written, with the size that the owner gives its gang."""
    old_intent: Intent | None = None
    """The same before an update."""


@dataclass(slots=True)
class _Pass:
    """One pass over the policies, with the object as it was when the pass began."""

    runner: Runner
    variables: CelVariables
    matched: list[CompiledPolicy] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    pod: PodClass | None = None


@dataclass(slots=True)
class ObjectEvaluator:
    """Evaluates the objects of one request; `result` collects what it finds."""

    admission: AdmissionRequest
    tables: PolicyTables
    now: datetime
    inject: bool
    validate: bool
    params: Json | None
    result: EvaluationBuilder
    deadline: CpuDeadline = UNLIMITED

    def evaluate(self, subject: EvaluatedObject) -> Json | None:
        """The object with all writes."""
        final, obj = self._settle(subject)
        result = self.result
        result.policies.update(dict.fromkeys(policy.name for policy in final.matched))
        if final.pod is not None:
            result.pods.append(final.pod)
        result.add_conflicts(final.conflicts)
        result.skipped += final.skipped
        result.failures += final.failures
        for policy in final.matched if self.validate else ():
            self._validate(policy, final, subject)
        return obj

    # --- passes ---

    def _settle(self, subject: EvaluatedObject) -> tuple[_Pass, Json | None]:
        """Passes until nothing is left to write; a template gets its writes when it is a pod."""
        obj = subject.object
        conflicts: list[Conflict] = []
        injections: list[Injection] = []
        for _ in range(_MOST_PASSES):
            current = self._pass(subject, obj)
            if obj is None or not self._applies_defaults(subject):
                return current, obj
            draft = self._defaults(current, subject, obj)
            conflicts += [row for row in draft.conflicts if row not in conflicts]
            if not draft.injections:
                break
            written = {row.path for row in draft.injections if row.path[-1] != "-"}
            injections = [row for row in injections if row.path not in written]
            injections += draft.injections
            obj = draft.object
        else:
            current.failures.append(_located(_unsettled(draft.injections), subject))
        current.conflicts += conflicts
        if not subject.advisory:
            self.result.injections += injections
        return current, obj

    def _applies_defaults(self, subject: EvaluatedObject) -> bool:
        """Policies write to pods at their creation only."""
        created = self.admission.operation == "CREATE" and not self.admission.subresource
        return subject.advisory or (self.inject and created)

    def _pass(self, subject: EvaluatedObject, obj: Json | None) -> _Pass:
        identity = self.result.identity
        variables = CelVariables(self.admission, identity, self.tables, obj, is_pod=subject.is_pod)
        values = variables.values(subject.policies, self.params)
        view = reached(subject.policies, validate=self.validate)
        current = _Pass(Runner(values, view=view, deadline=self.deadline), variables)
        current.matched = [
            policy
            for policy in subject.policies
            if not policy.conditions or self._match(policy, current, subject)
        ]
        if subject.is_pod and self.admission.operation in ("CREATE", "UPDATE"):
            self._classify(current, subject, values["workload"] is not None)
        return current

    def _match(self, policy: CompiledPolicy, current: _Pass, subject: EvaluatedObject) -> bool:
        """One false condition skips the policy; errors count only where no condition is false."""
        current.runner.enter(policy)
        error: tuple[Compiled, EvaluationError] | None = None
        for condition in policy.conditions:
            try:
                if not current.runner.is_true(condition):
                    return False
            except EvaluationError as exc:
                error = error or (condition, exc)
        if error is None:
            return True
        rule, message = error[0].field, error[1].message
        if policy.fails_closed:
            text = f"matchCondition cannot be evaluated: {message}"
            current.failures.append(
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
            current.skipped.append(Skipped(policy.name, rule, message))
        return False

    def _classify(self, current: _Pass, subject: EvaluatedObject, bind: bool) -> None:
        variables = current.variables
        pod = variables.pod

        def true_rules(
            policy: CompiledPolicy, rules: Sequence[ClassifyRule], first: Joined
        ) -> Iterator[ClassifyRule]:
            current.runner.enter(policy)
            first_true = current.runner.joined_value(first)
            start = first_true if isinstance(first_true, int) else 0
            for index in range(start, len(rules)) if start >= 0 else ():
                rule = rules[index]
                if index == first_true or self._holds(policy, rule.when, current, subject):
                    yield rule

        type_, failures = classify.workload_type(pod, current.matched, true_rules)
        if bind:
            current.runner.bind("workload", variables.workload(type_.value, ""))
        tier, more, conflicts = classify.hardware_tier(
            pod, self.result.identity.tier, self.tables, current.matched, true_rules
        )
        if bind and tier is not None:
            current.runner.bind("workload", variables.workload(type_.value, tier.value))
        if self.admission.operation == "CREATE" or subject.advisory:
            current.failures += [_located(row, subject) for row in failures + more]
        current.conflicts += conflicts
        current.pod = PodClass(subject.path, type_, tier)

    def _holds(
        self, policy: CompiledPolicy, when: Compiled, current: _Pass, subject: EvaluatedObject
    ) -> bool:
        current.runner.enter(policy)
        try:
            return current.runner.is_true(when)
        except EvaluationError as exc:
            self._evaluation_error(policy, when.field, exc, current, subject)
            return False

    def _evaluation_error(
        self,
        policy: CompiledPolicy,
        rule: str,
        error: EvaluationError,
        current: _Pass,
        subject: EvaluatedObject,
    ) -> None:
        if not policy.fails_closed:
            current.skipped.append(Skipped(policy.name, rule, error.message))
            return
        text = f"cannot be evaluated: {error.message}"
        failure = Failure(policy.name, rule, text, path=subject.path, advisory=subject.advisory)
        if failure not in current.failures:
            current.failures.append(failure)

    # --- defaults ---

    def _defaults(self, current: _Pass, subject: EvaluatedObject, obj: Json) -> Draft:
        draft = Draft(obj)
        bases: list[Path] = [()] if subject.is_pod else self._bases(obj)
        for policy in current.matched:
            for rule in policy.defaults:
                if rule.when is not None and not self._holds(policy, rule.when, current, subject):
                    continue
                for setting in rule.settings:
                    value = self._value(policy, rule.rule, setting, current, subject)
                    write = Injection((), value, policy.name, rule.rule, rule.override)
                    for base in bases if value is not None else ():
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
        current: _Pass,
        subject: EvaluatedObject,
    ) -> Any:
        if not isinstance(setting.value, Compiled):
            return setting.value
        current.runner.enter(policy)
        try:
            return tenant_limits.checked_value(setting, current.runner.value(setting.value))
        except EvaluationError as exc:
            self._evaluation_error(policy, rule, exc, current, subject)
            return None

    # --- validations ---

    def _validate(self, policy: CompiledPolicy, current: _Pass, subject: EvaluatedObject) -> None:
        runner, name = current.runner, policy.name
        runner.enter(policy)
        rules = policy.validations if name not in subject.validated_by else ()
        if rules and runner.joined_value(policy.all_pass) is True:
            self.result.outcomes += policy.all_passed
            rules = ()
        for rule in rules:
            error: EvaluationError | None = None
            try:
                passed: bool | None = runner.is_true(rule.expression)
            except EvaluationError as exc:
                passed, error = None, exc
            self.result.outcomes.append(Outcome(name, rule.rule, passed))
            if passed:
                continue
            if error is not None and not policy.fails_closed:
                self.result.skipped.append(Skipped(name, rule.rule, error.message))
                continue
            text = (
                self._message(policy, rule, current)
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
            self._fail(policy, failure, current)
        made = self.admission.operation == "CREATE" or subject.advisory
        if subject.is_pod and made and tenant_limits.has_limits(policy):
            self._limit(policy, current, subject)

    def _limit(self, policy: CompiledPolicy, current: _Pass, subject: EvaluatedObject) -> None:
        """What a template's author requests is denied; what defaults would add is advice."""
        final, old = current.variables.intent, subject.old_intent
        known = list(tenant_limits.limits(policy, old)) if old is not None else []
        written = tenant_limits.limits(policy, subject.intent or final)
        binding = [row for row in written if row not in known]
        for failure in dict.fromkeys((*binding, *tenant_limits.limits(policy, final))):
            located = _located(failure, subject)
            self._fail(policy, replace(located, advisory=failure not in binding), current)

    def _message(self, policy: CompiledPolicy, rule: CompiledValidation, current: _Pass) -> str:
        if rule.message_expression is None:
            return rule.message
        try:
            value = current.runner.value(rule.message_expression)
        except EvaluationError as exc:
            field_name = rule.message_expression.field
            self.result.skipped.append(Skipped(policy.name, field_name, exc.message))
            return rule.message
        text = value.strip() if isinstance(value, str) else ""
        usable = text and text.isprintable() and len(text.encode()) <= _LONGEST_MESSAGE
        return text if usable else rule.message

    def _fail(self, policy: CompiledPolicy, failure: Failure, current: _Pass) -> None:
        """Record the failure, unless an exception of the same policy covers it."""
        for exception in policy.exceptions:
            if not exception.covers(failure.rule) or exception.model.expired(self.now):
                continue
            try:
                is_exempt = current.runner.is_true(exception.when)
            except EvaluationError as exc:
                self.result.skipped.append(Skipped(policy.name, exception.when.field, exc.message))
                continue
            if is_exempt:
                self.result.excepted.append(
                    ExemptedFailure(
                        policy.name, failure.rule, exception.model.name, exception.model.reason
                    )
                )
                return
        self.result.failures.append(failure)


def _located(failure: Failure, subject: EvaluatedObject) -> Failure:
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
