from pathlib import Path

import pytest

from kubenexus.simulate import inputs, run
from kubenexus.simulate.result import Injected, ManifestResult, Pod, PodOutcome, Result
from policies.engine.policyset import PolicySet

CLUSTER = """apiVersion: dev.kubenexus.io/v1alpha1
kind: Cluster
namespaces: [{name: ns, tenant: t, tier: gold}]
nodes:
  - name: gpu
    cpu: 16
    memory: 64Gi
    gpus: {model: H100, count: 4, memory: 80Gi}
    numa: {nodes: 2}
  - {name: cpu, cpu: 4, memory: 8Gi}
"""
OURS = "kubenexus-scheduler"
OTHER = "other-scheduler"


def a_pod(
    name: str,
    *,
    cpu: str = "1",
    gpus: int = 0,
    namespace: str = "ns",
    scheduler: str = OURS,
    more: str = "",
    numa: str = "",
) -> str:
    notes = f", annotations: {{numa.scheduling.kubenexus.io/policy: {numa}}}" if numa else ""
    limits = f", limits: {{nvidia.com/gpu: {gpus}}}" if gpus else ""
    return f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}{notes}}}
spec:
  schedulerName: {scheduler}
  containers: [{{name: main, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}{limits}}}}}]
{more}"""


def on_node(name: str, node: str, *, cpu: str = "1") -> str:
    """A pod that names its node; one of this scheduler's may not."""
    return a_pod(name, cpu=cpu, scheduler=OTHER, more=f"  nodeName: {node}\n")


def a_gang(name: str, *, parallelism: int, need: int, gpus: int = 1) -> str:
    return f"""---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: ns}}
spec:
  parallelism: {parallelism}
  template:
    metadata:
      labels:
        pod-group.scheduling.kubenexus.io/name: {name}
        pod-group.scheduling.kubenexus.io/min-available: "{need}"
    spec:
      containers: [{{name: main, resources: {{limits: {{cpu: 1, nvidia.com/gpu: {gpus}}}}}}}]
"""


def a_member(name: str, *, node: str = "") -> str:
    labels = (
        "labels: {pod-group.scheduling.kubenexus.io/name: g, "
        'pod-group.scheduling.kubenexus.io/min-available: "2"}'
    )
    pod = on_node(name, node) if node else a_pod(name)
    return pod.replace("namespace: ns", f"namespace: ns, {labels}")


def a_class(name: str, value: int, more: str = "") -> str:
    return (
        "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
        f"metadata: {{name: {name}}}\nvalue: {value}\n{more}"
    )


def simulated(folder: Path, *manifests: str) -> Result:
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "m.yaml").write_text("".join(manifests))
    return run.simulate(inputs.read(folder), PolicySet())


def pods(result: Result) -> list[Pod]:
    return [pod for manifest in result.manifests for pod in manifest.pods]


def placed(name: str, node: str, numa: tuple[int, ...] = (), gpus: tuple[int, ...] = ()) -> Pod:
    return Pod(name, PodOutcome.PLACED, scheduler=OURS, node=node, numa=numa, gpus=gpus)


def there(name: str, node: str) -> Pod:
    return Pod(name, PodOutcome.PLACED, scheduler=OTHER, node=node)


def nowhere(name: str) -> Pod:
    reason = "nodeName is gone, which does not exist"
    return Pod(name, PodOutcome.PENDING, scheduler=OTHER, reasons=(reason,))


def pending(name: str, reason: str) -> Pod:
    return Pod(name, PodOutcome.PENDING, scheduler=OURS, reasons=(reason,))


@pytest.mark.parametrize(
    ("manifests", "want"),
    [
        pytest.param([a_pod("p")], [placed("p", "cpu")], id="a pod without GPUs spares GPU hosts"),
        pytest.param(
            [a_pod("p", gpus=2, numa="single-numa")],
            [placed("p", "gpu", (0,), (0, 1))],
            id="a strict pod gets one NUMA node and its GPUs",
        ),
        pytest.param(
            [a_pod("p", gpus=3, numa="single-numa")],
            [
                pending(
                    "p",
                    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, "
                    "1 no single NUMA node has sufficient capacity: need cpu 1, memory 1Gi, gpu 3; "
                    "largest free cpu 8, memory 32Gi, gpu 2.",
                )
            ],
            id="a strict pod that no NUMA node can hold stays pending",
        ),
        pytest.param(
            [a_pod("p", cpu="17")],
            [pending("p", "0/2 nodes are available: 2 Insufficient cpu.")],
            id="a pod that is too large stays pending with the counts",
        ),
        pytest.param(
            [a_pod("p", scheduler="default-scheduler")],
            [Pod("p", PodOutcome.LEFT, scheduler="default-scheduler")],
            id="a pod of another scheduler is left to it",
        ),
        pytest.param(
            [on_node("p", "gpu")],
            [there("p", "gpu")],
            id="a pod that names its node is there already",
        ),
        pytest.param(
            [on_node("p", "gone")],
            [nowhere("p")],
            id="a pod that names a missing node stays pending",
        ),
        pytest.param(
            [on_node("first", "gpu", cpu="16"), a_pod("p", cpu="5")],
            [
                there("first", "gpu"),
                pending("p", "0/2 nodes are available: 2 Insufficient cpu."),
            ],
            id="a pod with nodeName is charged",
        ),
        pytest.param(
            [a_pod("p", more="  schedulingGates: [{name: wait}]\n")],
            [pending("p", "has scheduling gates; pending until they are removed")],
            id="a gated pod is not placed",
        ),
        pytest.param(
            [a_gang("g", parallelism=5, need=5)],
            [
                pending(
                    f"g-{index}",
                    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
                    "waiting for pod group g: 4/5 members fit",
                )
                for index in range(5)
            ],
            id="a gang that does not fit whole: no member is placed",
        ),
        pytest.param(
            [a_gang("g", parallelism=5, need=4)],
            [
                *(placed(f"g-{i}", "gpu", (i // 2,), (i,)) for i in range(4)),
                pending("g-4", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
            ],
            id="members above the size follow only where they fit",
        ),
        pytest.param(
            [
                a_pod("low", cpu="16"),
                a_class("high", 100),
                a_pod("high", cpu="16", more="  priorityClassName: high\n"),
            ],
            [
                pending("low", "0/2 nodes are available: 2 Insufficient cpu."),
                placed("high", "gpu", (0, 1)),
            ],
            id="a higher priority is placed before an older pod",
        ),
        pytest.param(
            [
                a_class("low", -1),
                a_class("usual", 7, "globalDefault: true\n"),
                a_class("less", 5),
                a_pod("less", cpu="16", more="  priorityClassName: less\n"),
                a_pod("usual", cpu="16"),
            ],
            [
                pending("less", "0/2 nodes are available: 2 Insufficient cpu."),
                placed("usual", "gpu", (0, 1)),
            ],
            id="a pod that names no priority class has the default one",
        ),
        pytest.param(
            [a_member("there", node="cpu"), a_member("p")],
            [there("there", "cpu"), placed("p", "cpu")],
            id="a member that names its node counts for its gang",
        ),
        pytest.param(
            [a_member("lost", node="gone"), a_member("p")],
            [
                nowhere("lost"),
                pending("p", "waiting for pod group g: 1/2 pods exist"),
            ],
            id="a member on a node that does not exist does not count",
        ),
    ],
)
def test_the_outcome_of_pods(manifests: list[str], want: list[Pod], tmp_path: Path) -> None:
    assert pods(simulated(tmp_path, *manifests)) == want


@pytest.mark.parametrize(
    ("manifests", "want"),
    [
        pytest.param(
            [a_pod("p", namespace="elsewhere")],
            ('namespaces "elsewhere" not found',),
            id="a namespace that does not exist",
        ),
        pytest.param(
            [a_pod("p"), a_pod("p")],
            ('pods "p" already exists',),
            id="a second object of the same name",
        ),
        pytest.param(
            [a_gang("g", parallelism=1, need=1), a_gang("g", parallelism=1, need=1)],
            ('jobs.batch "g" already exists',),
            id="a second workload of the same name, with its group",
        ),
        pytest.param(
            [a_pod("p", more="  priorityClassName: urgent\n")],
            ('pods "p" is forbidden: no PriorityClass with name urgent was found',),
            id="a priority class that does not exist",
        ),
        pytest.param(
            [a_gang("g", parallelism=2, need=3)],
            (
                "kubenexus/gang-size: pod-group.scheduling.kubenexus.io/min-available is 3 but the "
                "workload makes 2 pods of group 'g' at a time (spec.template.metadata.labels["
                "'pod-group.scheduling.kubenexus.io/min-available']): lower min-available to 2 or "
                "less, or run 3 pods at a time; where others make the rest, label the template with "
                "its pod-group.scheduling.kubenexus.io/role",
            ),
            id="a gang that its workload can never complete",
        ),
    ],
)
def test_a_denied_workload_makes_no_pods(
    manifests: list[str], want: tuple[str, ...], tmp_path: Path
) -> None:
    last = simulated(tmp_path, *manifests).manifests[-1]
    assert (last.admitted, last.denials, last.pods) == (False, want, ())


def test_a_denied_pod_of_an_admitted_workload_names_the_rule(
    tmp_path: Path,
) -> None:
    """A rule that a template fails is a warning; that the pod fails, a denial."""
    deployment = """apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: ns}
spec:
  template:
    metadata: {labels: {workload.kubenexus.io/type: other}}
    spec: {containers: [{name: main}]}
"""
    (one,) = simulated(tmp_path, deployment).manifests
    (pod,) = one.pods
    assert (one.admitted, pod.name, pod.outcome, one.injected) == (
        True,
        "d-0",
        PodOutcome.DENIED,
        (),
    )
    assert pod.reasons[0].startswith("kubenexus/workload-type: found 'other', want one of")


def test_a_denied_object_leaves_its_name_free(tmp_path: Path) -> None:
    broken, mended = a_gang("g", parallelism=2, need=3), a_gang("g", parallelism=2, need=2)
    found = simulated(tmp_path, broken, mended)
    assert [one.admitted for one in found.manifests] == [False, True]


def test_the_size_of_a_gang_is_taken_from_the_workload_that_makes_it(tmp_path: Path) -> None:
    job = a_gang("g", parallelism=3, need=3)
    job = "".join(line for line in job.splitlines(keepends=True) if "min-available" not in line)
    (one,) = simulated(tmp_path, job).manifests
    found = {injected.field: injected for injected in one.injected}
    assert found["label pod-group.scheduling.kubenexus.io/min-available"] == Injected(
        "label pod-group.scheduling.kubenexus.io/min-available", "3", ("g-0", "g-1", "g-2")
    )


def test_a_namespace_document_makes_the_namespace_with_its_labels(tmp_path: Path) -> None:
    namespace = (
        "---\napiVersion: v1\nkind: Namespace\n"
        "metadata: {name: late, labels: {tenant.kubenexus.io/tier: silver}}\n"
    )
    (one,) = simulated(tmp_path, a_pod("p", namespace="late"), namespace).manifests
    found = {injected.field: injected.value for injected in one.injected}
    assert found["label tenant.kubenexus.io/tier"] == "silver"


def test_an_exempt_namespace_is_not_sent_to_the_webhook(tmp_path: Path) -> None:
    (one,) = simulated(tmp_path, a_pod("p", namespace="kube-system")).manifests
    assert (one.admitted, one.injected, one.pods) == (True, (), (placed("p", "cpu"),))


def test_a_workload_without_pods_has_the_reason(tmp_path: Path) -> None:
    job = a_gang("g", parallelism=2, need=2).replace("spec:\n", "spec:\n  suspend: true\n", 1)
    (one,) = simulated(tmp_path, job).manifests
    assert one == ManifestResult(
        source=str(tmp_path / "m.yaml"),
        line=2,
        kind="Job",
        namespace="ns",
        name="g",
        notes=("suspended: makes no pods until spec.suspend is false",),
    )


def test_the_same_inputs_give_the_same_result(tmp_path: Path) -> None:
    manifests = [a_gang("g", parallelism=3, need=2), a_pod("a"), a_pod("b", gpus=1)]
    assert simulated(tmp_path, *manifests) == simulated(tmp_path, *manifests)
