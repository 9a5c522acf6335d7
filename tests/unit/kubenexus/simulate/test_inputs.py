from pathlib import Path

import pytest

from kubenexus.simulate import inputs, validate
from policies.documents import yaml_reader

CLUSTER = (
    "apiVersion: dev.kubenexus.io/v1alpha1\nkind: Cluster\n"
    "nodes: [{name: n, cpu: 4, memory: 8Gi}]\n"
)
POD = """apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {a: b}
spec:
  containers:
    - name: main
      resources:
        requests: {cpu: 1}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  parallelism: 2
  template:
    metadata: {labels: {a: b}}
    spec:
      containers: [{name: main}]
"""
NODE = """apiVersion: v1
kind: Node
metadata: {name: extra}
status:
  capacity: {cpu: 2, memory: 4Gi}
"""


def a_folder(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / f"{name}.yaml").write_text(text)
    return root


def test_a_folder_is_read_in_name_order_and_its_documents_in_order(tmp_path: Path) -> None:
    two = POD.replace("name: p", "name: second") + "---\n" + POD.replace("name: p", "name: third")
    a_folder(tmp_path, cluster=CLUSTER, b=two, a=JOB)
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / "c.yml").write_text(POD.replace("name: p", "name: last"))
    found = inputs.read(tmp_path)
    assert [one.obj["metadata"]["name"] for one in found.manifests] == [
        "j",
        "second",
        "third",
        "last",
    ]
    assert [node["metadata"]["name"] for node in found.cluster.nodes] == ["n"]


def test_a_cluster_option_overrules_the_folder(tmp_path: Path) -> None:
    a_folder(tmp_path, cluster=CLUSTER, p=POD)
    other = tmp_path / "other"
    other.write_text(CLUSTER.replace("name: n", "name: m"))
    found = inputs.read(tmp_path, cluster=other)
    assert [node["metadata"]["name"] for node in found.cluster.nodes] == ["m"]


def test_a_node_object_joins_the_cluster_with_its_allocatable_filled_in(tmp_path: Path) -> None:
    found = inputs.read(a_folder(tmp_path, cluster=CLUSTER, node=NODE, pod=POD))
    assert [node["metadata"]["name"] for node in found.cluster.nodes] == ["n", "extra"]
    assert found.cluster.nodes[1]["status"] == {
        "capacity": {"cpu": "2", "memory": "4Gi"},
        "allocatable": {"cpu": "2", "memory": "4Gi"},
    }


def test_a_status_that_was_exported_with_a_pod_is_dropped(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, cluster=CLUSTER, p=POD + "status: {containerStatuses: [odd]}\n")
    (found,) = inputs.read(folder).manifests
    assert sorted(found.obj) == ["apiVersion", "kind", "metadata", "spec"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "a: [1\n",
            "2:1: not YAML: did not find expected ',' or ']'",
            id="broken YAML",
        ),
        pytest.param(
            "[1, 2]\n",
            "1:1: found no object; want a map with apiVersion, kind and metadata",
            id="a document that is no object",
        ),
        pytest.param(
            POD.replace("kind: Pod\n", ""),
            "1:1: kind is missing or no text; write what the object is",
            id="no kind",
        ),
        pytest.param(
            POD.replace("  name: p\n", ""),
            "4:3: metadata.name is missing; give the object a name",
            id="no name",
        ),
        pytest.param(
            CLUSTER,
            "2:7: this describes a cluster; call the file cluster.yaml, or pass it with --cluster",
            id="a cluster among the manifests",
        ),
        pytest.param(
            POD.replace("{a: b}", "{a: 4}"),
            "5:15: a: found 4, want text; put it in quotes",
            id="a label that is a number",
        ),
        pytest.param(
            JOB.replace("{a: b}", "{a: true}"),
            "7:28: a: found True, want text; put it in quotes",
            id="a template's label that is a boolean",
        ),
        pytest.param(
            POD.replace("cpu: 1", "cpu: 1x"),
            "10:25: spec.containers[0].resources.requests.cpu: found '1x', want a quantity such as "
            "500m, 2, 1.5Gi or 80G; correct it",
            id="a quantity that is none",
        ),
        pytest.param(
            POD.replace("cpu: 1", "nvidia.com/gpu: -1"),
            "10:36: spec.containers[0].resources.requests.nvidia.com/gpu: found -1, want zero or "
            "more; correct it",
            id="a negative request of a resource with dots in its name",
        ),
        pytest.param(
            JOB.replace("parallelism: 2", "parallelism: -2"),
            "5:3: requests -2 pods, want zero or more; correct the number",
            id="a negative number of pods",
        ),
        pytest.param(
            JOB[: JOB.index("  template")],
            "5:3: this Job has no pod template; write one under spec",
            id="a Job without a template",
        ),
        pytest.param(
            POD[: POD.index("spec")],
            "1:1: the pod has no spec; write its containers",
            id="a pod without a spec",
        ),
        pytest.param(
            JOB.replace("[{name: main}]", "[main]"),
            "9:20: containers[0]: found 'main', want a map",
            id="a container that is no map",
        ),
        pytest.param(
            JOB.replace("[{name: main}]", "{name: main}"),
            "9:19: containers: found {'name': 'main'}, want a list",
            id="containers that are no list",
        ),
        pytest.param(
            JOB.replace("{name: main}", "{name: main, ports: [80]}"),
            "9:41: ports[0]: found 80, want a map",
            id="a port that is no map",
        ),
        pytest.param(
            POD.replace("spec:\n", "spec:\n  priorityClassName: [a]\n"),
            "7:22: priorityClassName: found ['a'], want text; put it in quotes",
            id="a priority class that is a list",
        ),
        pytest.param(
            POD.replace("spec:\n", "spec:\n  nodeSelector: a\n"),
            "7:17: nodeSelector: found 'a', want a map",
            id="a selector that is no map",
        ),
        pytest.param(
            NODE.replace("cpu: 2", "cpu: -2"),
            "5:19: status.capacity.cpu: found -2, want zero or more",
            id="a node with negative capacity",
        ),
        pytest.param(
            NODE.replace("{cpu: 2, memory: 4Gi}", "lots"),
            "5:13: status.capacity: found 'lots', want a map of quantities",
            id="a node with a capacity in prose",
        ),
        pytest.param(
            NODE[: NODE.index("status")],
            "1:1: the node has no status.capacity; write what it holds",
            id="a node that holds nothing",
        ),
        pytest.param(
            NODE.replace("extra", "n"),
            "3:18: a node called 'n' exists already; rename one",
            id="a node that the cluster file has already",
        ),
        pytest.param(
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: c}\n"
            "value: high\n",
            "4:8: value is missing or no whole number; write a priority",
            id="a priority class without a number",
        ),
    ],
)
def test_bad_input_is_reported_with_its_place(text: str, want: str, tmp_path: Path) -> None:
    a_folder(tmp_path, cluster=CLUSTER, m=text)
    with pytest.raises(yaml_reader.DocumentError) as caught:
        inputs.read(tmp_path)
    assert str(caught.value) == f"{tmp_path}/m.yaml:{want}"


def test_an_unknown_kind_is_named_with_the_known_ones(tmp_path: Path) -> None:
    a_folder(tmp_path, cluster=CLUSTER, m=POD.replace("kind: Pod", "kind: Service"))
    with pytest.raises(yaml_reader.DocumentError) as caught:
        inputs.read(tmp_path)
    text = str(caught.value)
    assert text.startswith(
        f"{tmp_path}/m.yaml:2:7: kind 'Service' of 'v1' is not simulated; take it out of the file, "
        "or use one of CronJob, DaemonSet, Deployment, "
    )


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param(
            {"p": POD},
            "no cluster is described; add cluster.yaml to the folder, or pass --cluster FILE",
            id="a folder without a cluster",
        ),
        pytest.param(
            {"cluster": CLUSTER},
            "holds no manifest; write at least one object",
            id="a folder without a manifest",
        ),
    ],
)
def test_a_folder_that_lacks_something(files: dict[str, str], want: str, tmp_path: Path) -> None:
    with pytest.raises(yaml_reader.DocumentError) as caught:
        inputs.read(a_folder(tmp_path, **files))
    assert str(caught.value) == f"{tmp_path}: {want}"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("a.b.c/d", ("a", "b.c/d"), id="the longest key that fits wins"),
        pytest.param("a.l[1].k", ("a", "l", 1, "k"), id="a list is entered by its index"),
        pytest.param("a.l[7].k", ("a", "l"), id="an index that is not there ends the walk"),
        pytest.param("a.z.k", ("a",), id="a key that is not there ends the walk"),
        pytest.param("", (), id="nothing leads nowhere"),
    ],
)
def test_steps_along_a_value(path: str, want: tuple[str | int, ...]) -> None:
    value = {"a": {"b": {}, "b.c/d": 1, "l": [0, {"k": 2}]}}
    assert validate.steps(value, path) == want
