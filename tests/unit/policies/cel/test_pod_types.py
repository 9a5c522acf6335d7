"""Expressions over Pods are checked against the Pod's own fields when they are loaded."""

import json
from typing import Any, Final

import pytest

from policies.cel import engines, generate_pod_types, pod_types, protocol
from policies.cel.protocol import Activation, CompileError, Environment

ENGINE: Final = engines.engine("cel-expr-python")
TYPED: Final = Environment(protocol.ADMISSION.variables, schema="Pod")


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        pytest.param(
            "object.spec.contaners.size() > 0",
            1,
            12,
            "undefined field 'contaners' not found in struct 'kubernetes.PodSpec'",
            id="a misspelt field",
        ),
        pytest.param(
            "object.spec.containers.all(c,\n  c.imag == 'a')",
            2,
            4,
            "undefined field 'imag' not found in struct 'kubernetes.Container'",
            id="a misspelt field of a container, on the second line",
        ),
        pytest.param(
            "oldObject.spec.nodename == ''",
            1,
            15,
            "undefined field 'nodename' not found in struct 'kubernetes.PodSpec'",
            id="the old object too",
        ),
        pytest.param(
            "object.spec.priority == 'high'",
            1,
            22,
            "found no matching overload for '_==_' applied to '(int, string)'",
            id="a number compared with a text",
        ),
        pytest.param(
            "object.metadata.labels['a'] > 1",
            1,
            29,
            "found no matching overload for '_>_' applied to '(string, int)'",
            id="a label compared with a number",
        ),
        pytest.param(
            "object.spec.hostNetwork",
            None,
            None,
            "",
            id="a bool field is a rule",
        ),
        pytest.param("object.spec.nodeName", 1, 1, "the expression gives string", id="no rule"),
    ],
)
def test_a_fault_is_found_with_its_place(
    source: str, line: int | None, column: int | None, message: str
) -> None:
    if line is None:
        assert ENGINE.compile(source, TYPED).result_type == "bool"
        return
    with pytest.raises(CompileError) as caught:
        ENGINE.compile(source, TYPED)
    error = caught.value
    assert (error.line, error.column, error.message[: len(message)]) == (line, column, message)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.metadata.labels.team == 'a'", id="labels by field"),
        pytest.param("'team' in object.metadata.labels", id="labels by key"),
        pytest.param("object == null || oldObject == null", id="null objects"),
        pytest.param("object.spec.securityContext == null", id="null fields"),
        pytest.param("object.spec.containers[0].ports[0].containerPort < 1024", id="numbers"),
        pytest.param(
            "object.spec.containers.all(c, c.livenessProbe.httpGet.port == 80 "
            "|| c.livenessProbe.httpGet.port == 'http')",
            id="a port is a number or a text",
        ),
        pytest.param(
            "quantity(object.spec.containers[0].resources.limits['cpu']).isLessThan(quantity('1'))",
            id="a quantity is text to be parsed",
        ),
        pytest.param("object.spec.containers[0].resources.limits.cpu == 1", id="or a number"),
        pytest.param(
            "timestamp(object.metadata.creationTimestamp) > timestamp('2020-01-01T00:00:00Z')",
            id="a time is text in JSON",
        ),
        pytest.param("request.operation == 'CREATE'", id="the request has no schema"),
        pytest.param("gpus(object) + requests(object, 'cpu') > 0", id="facts"),
        pytest.param("object.spec.?nodeName.orValue('') == ''", id="optional fields"),
        pytest.param("object.metadata.namespace == 'default'", id="a reserved word as a field"),
        pytest.param("object.spec.schedulingGroup.podGroupName == 'a'", id="the newest fields"),
    ],
)
def test_what_people_write_passes(source: str) -> None:
    assert ENGINE.compile(source, TYPED).result_type in ("bool", "dyn")


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("kubernetes.Pod{}", 1, "an object of type kubernetes.Pod cannot be made; write a map"),
        ("1 == 1 && net.IP{} == null", 11, "an object of type net.IP cannot be made"),
        ("type(object) == kubernetes.Pod", 27, "kubernetes.Pod is no type at run time"),
    ],
)
def test_types_that_only_the_checker_knows_are_rejected(
    source: str, column: int, message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        ENGINE.compile(source, TYPED, result_type="any")
    assert (caught.value.column, caught.value.message[: len(message)]) == (column, message)


def test_without_the_schema_fields_are_not_checked() -> None:
    untyped = Environment(protocol.ADMISSION.variables)
    assert ENGINE.compile("object.spec.replicas == 1", untyped).result_type == "bool"


def test_a_variable_keeps_its_type() -> None:
    source = "object.spec.containers.filter(c, c.name != 'proxy')"
    found = ENGINE.compile(source, TYPED, result_type="any").result_type
    reader = TYPED.extended({"variables.apps": found})
    with pytest.raises(CompileError, match="undefined field 'imag'"):
        ENGINE.compile("variables.apps.all(c, c.imag == '')", reader)
    program = ENGINE.compile("variables.apps.all(c, c.image == 'a')", reader)
    activation = Activation({"variables.apps": [{"image": "a"}]})
    assert (found, program.evaluate(activation)) == ("list<kubernetes.Container>", True)


def test_every_variable_of_the_admission_can_be_declared_again() -> None:
    sources = ["quantity('1')", "object.spec", "[timestamp('2020-01-01T00:00:00Z')]", "null", "1u"]
    for source in sources:
        found = ENGINE.compile(source, TYPED, result_type="any").result_type
        env = TYPED.extended({"variables.x": found})
        assert ENGINE.compile("variables.x", env, result_type="any").result_type == found


def test_fields_are_read_from_an_openapi_document() -> None:
    document: dict[str, Any] = {
        "components": {
            "schemas": {
                "a.b.Root": {
                    "properties": {
                        "name": {"type": "string"},
                        "when": {"allOf": [{"$ref": "#/components/schemas/a.Time"}]},
                        "port": {"$ref": "#/components/schemas/a.IntOrString"},
                        "parts": {
                            "type": "array",
                            "items": {"allOf": [{"$ref": "#/components/schemas/a.b.Part"}]},
                        },
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "raw": {"type": "object"},
                    }
                },
                "a.b.Part": {"properties": {"size": {"type": "integer"}}},
                "a.Time": {"type": "string", "format": "date-time"},
                "a.IntOrString": {"type": "string", "format": "int-or-string"},
            }
        }
    }
    assert generate_pod_types.fields(document, root="a.b.Root") == {
        "Part": {"size": "int"},
        "Root": {
            "labels": "map<string,string>",
            "name": "string",
            "parts": "list<Part>",
            "port": "dyn",
            "raw": "dyn",
            "when": "string",
        },
    }


def test_the_schema_is_printed_one_type_a_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "components": {
            "schemas": {generate_pod_types.ROOT: {"properties": {"a": {"type": "string"}}}}
        }
    }
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    assert generate_pod_types.main([str(file), "v1.0.0"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "kubernetes": "v1.0.0",
        "types": {"Pod": {"a": "string"}},
    }


def test_the_checked_in_schema_names_its_version() -> None:
    version, types = pod_types.pod_types()
    assert (version.startswith("v1."), types["Pod"]["spec"]) == (True, "PodSpec")
