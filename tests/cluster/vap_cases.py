"""
Expressions and pods for which a ValidatingAdmissionPolicy and our engine must say the same.

Three sources: rules as people write them, over pods that do and do not have what the rules require;
Kubernetes' function library, with each answer as a rule; and rules put together from parts by a
seeded generator. Nothing here depends on what the server fills in at random (uid, time, names).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance import kubernetes_answers as answers

Object = dict[str, Any]

SEED: Final = 20_240_607
GENERATED: Final = 150


@dataclass(frozen=True, slots=True)
class Case:
    """One expression and the pods it is evaluated on."""

    expression: str
    pods: tuple[str, ...]


def container(name: str, **fields: Any) -> Object:
    return {"name": name, "image": "registry.example.com/app:1", **fields}


PODS: Final[dict[str, Object]] = {
    "plain": {"spec": {"containers": [container("main")]}},
    "rich": {
        "metadata": {
            "labels": {"team": "a", "tier": "gold", "dash-ed/key": "x"},
            "annotations": {"size": "12", "cidr": "10.0.0.0/8", "version": "1.2.3"},
        },
        "spec": {
            "priority": 0,
            "containers": [
                container(
                    "main",
                    ports=[{"containerPort": 8080, "name": "http"}],
                    env=[{"name": "A", "value": "1"}, {"name": "B"}],
                    resources={
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                        "limits": {"cpu": "1", "memory": "2Gi"},
                    },
                    securityContext={"runAsNonRoot": True, "runAsUser": 1000},
                ),
                container("proxy", image="docker.io/envoy:latest"),
            ],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
        },
    },
    "host": {
        "metadata": {"labels": {"team": "b"}},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 5,
            "containers": [
                container(
                    "main",
                    securityContext={"privileged": False},
                    resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
                )
            ],
        },
    },
}

RULES: Final = (
    "object.metadata.labels.team == 'a'",
    "has(object.metadata.labels) && 'team' in object.metadata.labels",
    "object.metadata.labels['dash-ed/key'] == 'x'",
    "object.metadata.?labels[?'team'].orValue('none') == 'none'",
    "object.metadata.?labels.?team.hasValue()",
    "object.metadata.labels.all(k, k.size() < 12)",
    "object.metadata.labels.exists(k, v, k == 'team' && v == 'a')",
    "object.metadata.labels.transformMap(k, v, v.size()).team == 1",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
    "object.spec.containers.exists_one(c, c.name == 'proxy')",
    "object.spec.containers.map(c, c.name).join(',') == 'main,proxy'",
    "object.spec.containers.filter(c, has(c.ports)).size() == 1",
    "object.spec.containers[1].name == 'proxy'",
    "object.spec.containers.all(c, has(c.resources.requests) && 'cpu' in c.resources.requests)",
    "object.spec.containers.all(c, quantity(c.resources.requests.cpu).isLessThan(quantity('1')))",
    "object.spec.containers[0].resources.limits.exists(k, quantity("
    "object.spec.containers[0].resources.limits[k]).isGreaterThan(quantity('1Gi')))",
    "object.spec.containers.map(c, has(c.ports) ? c.ports.size() : 0).sum() == 1",
    "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false",
    "object.spec.hostNetwork",
    "object.spec.hostNetwork == true",
    "object.spec.containers.all(c, !c.securityContext.privileged)",
    "object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)",
    "object.spec.terminationGracePeriodSeconds < 10",
    "object.spec.terminationGracePeriodSeconds / (object.spec.priority + 0) > 1",
    "object.spec.terminationGracePeriodSeconds == 5.0",
    "object.spec.terminationGracePeriodSeconds > 5u",
    "object.spec.containers[0].env[1].value == ''",
    "int(object.metadata.annotations.size) > 10",
    "int(object.metadata.labels.team) > 10",
    "cidr(object.metadata.annotations.cidr).containsIP('10.1.2.3')",
    "semver(object.metadata.annotations.version).isLessThan(semver('2.0.0'))",
    "semver(object.metadata.labels.team).isLessThan(semver('2.0.0'))",
    "object.metadata.labels.team.matches('^[a-z]$')",
    "object.metadata.labels.team.find('[0-9]') == ''",
    "format.dns1123Label().validate(object.metadata.labels.team).hasValue()",
    "object.spec.tolerations.exists(t, t.key == 'gpu')",
    "object.spec.nodeSelector == {'zone': 'a'}",
    "object.spec.nodeSelector != null",
    "oldObject == null",
    "oldObject.metadata.name == 'x'",
    "request.operation == 'CREATE' && request.kind.kind == 'Pod'",
    "request.operation in ['UPDATE', 'DELETE']",
    "request.dryRun == true",
    "request.userInfo.username == 'nobody'",
    "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == request.namespace",
    "params == null",
    "object.kind == 'Pod' && object.apiVersion == 'v1'",
    "size(object.spec.containers) == 1",
    "type(object.spec.containers) == list",
    "type(object.spec.terminationGracePeriodSeconds) == int",
    "object.spec.containers[0].name",
    "object.spec.containers + [1] == []",
    "object.metadata.labels.team + 1 == 2",
    "object.metadata.labels.team < 'b'",
    "object.metadata.labels.team == 1",
    "dyn(object.metadata.labels.team) > 1",
    "sets.contains(object.spec.containers.map(c, c.name), ['main'])",
    "lists.range(3) == [0, 1, 2] && object.spec.containers.size() > lists.range(2).size()",
    "cel.bind(n, object.spec.containers.size(), n > 1 && n < 3)",
    "object.spec.containers.map(c, c.name).indexOf('proxy') == 1",
    "object.spec.containers.map(c, c.name).isSorted()",
    "object.spec.containers.map(c, c.name).max() == 'proxy'",
    "1 / object.spec.containers.filter(c, c.name == 'proxy').size() == 1",
    "9223372036854775807 + object.spec.containers.size() > 0",
    "duration('1h') > duration('59m') && has(object.metadata.labels)",
    "timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
    "object.metadata.labels.exists(k, object.metadata.labels[k] == 'gold')",
    "object.nothing.at.all == 1 || true",
    "object.nothing.at.all == 1 && false",
    "object.nothing.at.all == 1 || false",
    "object.spec.containers[5].name == 'x'",
    "has(object.nothing.at)",
    "'%s/%d'.format([object.spec.containers[0].name, object.spec.containers.size()]) == 'main/1'",
    "b'abc' == bytes('abc') && string(b'abc') == 'abc'",
    "math.greatest(1, 2) == 2",
    "object.spec.contaners",
    "objekt.spec",
    "object.spec.containers.all(c, )",
    "'a' == 1",
    "1 + 'a' == 2",
    "[1, 'a'].size() == 2",
    "dyn(1) in dyn(object.metadata.labels)",
    "dyn(object.spec.nodeSelector) == dyn(1)",
)


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return repr(value)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
        case _:
            return repr(value)


def _from_answers() -> Iterator[Case]:
    for source, want in [*answers.PORTABLE, *answers.EXTENSIONS]:
        wanted = "1" if want == "error" else _literal(want)
        yield Case(f"dyn({source}) == dyn({wanted})", ("plain",))


class _Generator:
    """Rules from parts; the same seed gives the same rules."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> str:
        return self.rule(self._random.randint(1, 3))

    def rule(self, depth: int) -> str:
        choice = self._random.choice
        if depth == 0:
            return self._atom()
        match choice(["and", "or", "not", "has", "loop", "choice", "atom"]):
            case "and":
                return f"({self.rule(depth - 1)} && {self.rule(depth - 1)})"
            case "or":
                return f"({self.rule(depth - 1)} || {self.rule(depth - 1)})"
            case "not":
                return f"!({self.rule(depth - 1)})"
            case "has":
                return f"(has({self._field()}) && {self.rule(depth - 1)})"
            case "choice":
                parts = (self.rule(depth - 1) for _ in range(3))
                return "({} ? {} : {})".format(*parts)
            case "loop":
                macro = choice(["all", "exists", "exists_one"])
                return f"object.spec.containers.{macro}(c, {self._of_container()})"
            case _:
                return self._atom()

    def _field(self) -> str:
        return self._random.choice(
            [
                "object.metadata.labels",
                "object.metadata.labels.team",
                "object.spec.hostNetwork",
                "object.spec.priority",
                "object.spec.nodeSelector",
                "object.spec.nodeSelector.zone",
                "object.metadata.annotations",
                "object.metadata.annotations.size",
                "object.spec.containers[0].resources.requests.cpu",
            ]
        )

    def _atom(self) -> str:
        choice = self._random.choice
        field = self._field()
        if field.endswith(("labels", "annotations", "nodeSelector")):
            # What the server says of its maps beside other types is in `RULES`.
            return choice(
                [f"dyn('a') in dyn({field})", f"{field} == {{}}", f"{field} != {{'team': 'b'}}"]
            )
        value = choice(["'a'", "'gold'", "'12'", "1", "0", "true", "null", "2.5", "[]", "{}"])
        operator = choice(["==", "!=", "<", ">=", "in", "+"])
        if operator == "in":
            return f"dyn({value}) in dyn([{field}])"
        if operator == "+":
            return f"dyn({field}) + dyn({value}) != dyn(null)"
        return f"dyn({field}) {operator} dyn({value})"

    def _of_container(self) -> str:
        choice = self._random.choice
        field = choice(
            [
                "c.name",
                "c.image",
                "c.ports.size()",
                "c.ports[0].containerPort",
                "c.resources.requests.cpu",
                "c.securityContext.privileged",
                "c.securityContext.runAsUser",
                "c.env[0].value",
            ]
        )
        value = choice(["'main'", "'500m'", "1", "8080", "true", "1000", "'1'"])
        return f"dyn({field}) {choice(['==', '!=', '<', '>'])} dyn({value})"


def cases() -> list[Case]:
    """All of them, in a fixed order."""
    every = tuple(PODS)
    generator = _Generator(SEED)
    made = [Case(generator.next(), every) for _ in range(GENERATED)]
    return [*(Case(rule, every) for rule in RULES), *_from_answers(), *made]
