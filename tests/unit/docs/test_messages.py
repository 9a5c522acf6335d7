"""
Every refusal, warning and message of the product is on the page about troubleshooting, word for word.

A situation makes the text; the page must hold it. What the code can say and no situation makes is
found by reading the code, so that a new rule without its paragraph fails here.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from kubenexus.why import render
from policies import vocabulary
from policies.cel import engines
from policies.checks import gang as gang_checks
from policies.checks import numa
from policies.documents.faults import Fault
from policies.engine import compiled, loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from policies.pods.intent import Problem
from policies.pods.members import members_of
from scheduler.cache.snapshot import Snapshot
from scheduler.explain import response
from scheduler.explain.inspection import Inspection
from scheduler.model import unit as units
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.plan import GangCount, NoFit
from scheduler.model.pod import Pod as SchedulerPod
from scheduler.model.pod import unsupported_claims, unsupported_text
from scheduler.model.unit import PartialGang
from scheduler.plan import colocation, filters, planner
from scheduler.plan.memo import Memo
from scheduler.plugins import fabric, node_ports
from scheduler.plugins import node_affinity as nodes
from scheduler.plugins.interpod import affinity, topology_spread
from scheduler.plugins.numa import allocator
from scheduler.plugins.volumes import binding, csi_limits, pod_claims
from scheduler.plugins.volumes import plugin as volume_rules
from scheduler.queueing.entry import QueueState, UnitView
from scheduler.report import conditions, events
from scheduler.tenancy.preemption.victims import PreemptionReason
from tests.builders import a_job, a_namespace, a_pod, in_gang
from tests.pages import ROOT
from tests.unit.scheduler.builders import a_gang, a_node
from webhook.admission import decide, guards, tenant_claims
from webhook.admission.decide import Facts
from webhook.review.codec import Review

Json = dict[str, Any]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
FLAT = " ".join(PAGE.split())

MIN: Final = vocabulary.GANG_MIN_AVAILABLE_LABEL
NAME: Final = vocabulary.GANG_NAME_LABEL
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOME = a_namespace("team-a", tenant="research", tier="gold")
GPU: Final = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def a_review(obj: Json, operation: str = "CREATE", **more: Any) -> Review:
    group, _, version = obj["apiVersion"].rpartition("/")
    fields = {
        "uid": "u",
        "operation": operation,
        "kind": obj["kind"],
        "resource": f"{obj['kind'].lower()}s",
        "group": group,
        "version": version,
        "namespace": "team-a",
        "object": obj,
        **more,
    }
    return Review(**fields)


@pytest.fixture(scope="module")
def library() -> PolicySet:
    found = loader.load_files(loader.LIBRARY, compiler=Compiler(engines.engine()))
    assert not found.problems
    return found.policies


def with_policy(text: str, folder: Path) -> PolicySet:
    (folder / "tenant.yaml").write_text(text)
    paths = [*sorted(loader.LIBRARY.glob("*.yaml")), folder / "tenant.yaml"]
    found = loader.load_files(paths, compiler=Compiler(engines.engine()))
    assert not found.problems, found.problems
    return found.policies


def annotated(key: str, value: Any) -> Json:
    return a_pod("train", annotations={key: value})


def labelled(**labels: Any) -> Json:
    return a_pod("train", labels={key.replace("__", "/"): value for key, value in labels.items()})


def gang_of(*sizes: int | None) -> Json:
    """A PyTorchJob whose master and workers say these sizes; None: outside the gang."""
    parts = {
        role: {
            "replicas": count,
            "template": {
                "metadata": {"labels": in_gang("train", size) if size else {}},
                "spec": {"containers": [GPU]},
            },
        }
        for (role, count), size in zip((("Master", 1), ("Worker", 3)), sizes, strict=True)
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"pytorchReplicaSpecs": parts},
    }


def job(size: int | None, *, parallelism: int = 4, **labels: str) -> Json:
    pod = a_pod(labels={**in_gang("train", size), **labels})
    return a_job("train", pod=pod, parallelism=parallelism, completions=parallelism)


def stateful() -> Json:
    pod = a_pod(labels=in_gang("train", 3))
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"replicas": 3, "serviceName": "s", "template": template},
    }


REFUSED: Final[dict[str, Json]] = {
    "gang-size of more pods than there will be": job(6),
    "gang-size of a number that is none": a_pod("train", labels=in_gang("train", "four")),
    "gang-size that is missing": a_pod("train", labels=in_gang("train", None)),
    "gang-members-disagree": gang_of(4, 3),
    "gang-families": a_pod(
        "train",
        labels={**in_gang("train", 4), "pod-group.scheduling.sigs.k8s.io/name": "other"},
    ),
    "gang-name": a_pod("train", labels={MIN: "4"}),
    "gang-role": a_pod("train", labels={**in_gang(), vocabulary.GANG_ROLE_LABEL: "boss"}),
    "gang-timeout": a_pod(
        "train", labels=in_gang(), annotations={vocabulary.GANG_TIMEOUT_ANNOTATION: "soon"}
    ),
    "gang-members": a_pod(
        "train", labels=in_gang(), annotations={vocabulary.GANG_MEMBERS_ANNOTATION: "4 CPUs"}
    ),
    "numa-policy": annotated(vocabulary.NUMA_POLICY_ANNOTATION, "strict"),
    "numa-resources": annotated(vocabulary.NUMA_RESOURCES_ANNOTATION, "cpus"),
    "numa-ids": annotated(vocabulary.NUMA_AFFINITY_ANNOTATION, "left"),
    "numa-memory-intensive": annotated(vocabulary.MEMORY_INTENSIVE_ANNOTATION, "yes"),
    "numa-weight": annotated(vocabulary.NUMA_DISTANCE_WEIGHT_ANNOTATION, "200"),
    "numa-spread": annotated(vocabulary.GANG_NUMA_SPREAD_ANNOTATION, "wide"),
    "fabric": annotated(vocabulary.CO_LOCATE_ANNOTATION, "close"),
    "vram": annotated(vocabulary.VRAM_ANNOTATION, "80 GB"),
    "duration": annotated(vocabulary.EXPECTED_DURATION_ANNOTATION, "long"),
    "bounds of a text": annotated(vocabulary.EXPECTED_DURATION_ANNOTATION, "1" * 60_000),
    "bounds of a duration": a_pod(
        "train",
        labels=in_gang(),
        annotations={vocabulary.GANG_TIMEOUT_ANNOTATION: "99999999999h"},
    ),
    "bounds of a gang": a_pod("train", labels=in_gang("train", 20_000)),
    "bounds of a workload": job(None, parallelism=20_000),
    "bounds of a PodGroup": {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2**31 - 1}}},
    },
    "text": a_pod("train", labels={NAME: "train", MIN: 4}),  # type: ignore[dict-item]  # a slip of YAML
    "tenant": a_pod("train", labels={vocabulary.TENANT_LABEL: "shop"}),
    "tier": a_pod("train", labels={vocabulary.TIER_LABEL: "platinum"}),
    "workload-type": a_pod("train", labels={vocabulary.WORKLOAD_TYPE_LABEL: "learning"}),
    "hardware-tier": a_pod("train", labels={vocabulary.HARDWARE_TIER_LABEL: "best"}),
    "node-preset": a_pod("train", schedulerName=vocabulary.SCHEDULER_NAME, nodeName="gpu-0"),
    "assignment-preset": a_pod(
        "train",
        annotations={vocabulary.NUMA_ASSIGNED_ANNOTATION: "{}"},
        schedulerName=vocabulary.SCHEDULER_NAME,
    ),
}


def refusals(decision: decide.Decision) -> list[str]:
    return [failure.line() for failure in decision.failures]


def on_page(text: str) -> bool:
    return " ".join(text.split()) in FLAT


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_on_the_page(name: str, library: PolicySet) -> None:
    got = refusals(decide.validate(a_review(REFUSED[name]), Facts(HOME), library, now=NOW))
    assert [line for line in got if line.startswith(f"kubenexus/{name.split()[0]}:")], got
    assert [line for line in got if not on_page(line)] == []


NOTED: Final[dict[str, Json]] = {
    "gang-elsewhere": job(4, parallelism=3, **{vocabulary.GANG_ROLE_LABEL: "worker"}),
    "gang-mixed": gang_of(None, 3),
    "gang-order": stateful(),
    "gang-locality": a_pod("train", annotations={vocabulary.GANG_GROUP_ANNOTATION: "train"}),
    "numa-too-large": a_pod(
        "train",
        annotations={vocabulary.NUMA_POLICY_ANNOTATION: "single-numa"},
        containers=[{"name": "m", "image": "i", "resources": {"requests": {"cpu": "64"}}}],
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_a_warning_is_on_the_page(name: str) -> None:
    sizes = (numa.Size(cpu=32_000, memory=2**38, gpus=4),)
    found = gang_checks.check(members_of(NOTED[name]), numa_sizes=sizes)
    assert (found.problems, [note.rule for note in found.notes]) == ((), [name])
    assert on_page(found.notes[0].message), found.notes[0].message


def guarded() -> dict[str, list[Problem]]:
    stamped = a_pod("train", labels={vocabulary.TIER_LABEL: "silver"})
    raised = a_pod("train", labels={vocabulary.TIER_LABEL: "gold"})
    gated = a_pod("train", schedulingGates=[{"name": vocabulary.GANG_GATE}])
    bob = {"username": "bob"}
    moved = a_namespace("team-a", tenant="shop", tier="gold")
    scale: Json = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}}
    deployment = {**job(None), "apiVersion": "apps/v1", "kind": "Deployment"}
    deployment["spec"] = {"replicas": 4, "template": job(4)["spec"]["template"]}
    bind: Json = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "train"}}
    situations: dict[str, Callable[[], list[Problem]]] = {
        "stamped": lambda: guards.problems(
            a_review(raised, "UPDATE", old_object=stamped), trust=guards.TrustedUsers()
        ),
        "gate": lambda: guards.problems(
            a_review(a_pod("train"), "UPDATE", old_object=gated, user=bob),
            trust=guards.TrustedUsers(),
        ),
        "binding": lambda: guards.problems(
            a_review(bind, resource="pods", subresource="binding", user=bob),
            trust=guards.TrustedUsers(),
            bound_pod=a_pod("train", schedulerName=vocabulary.SCHEDULER_NAME),
        ),
        "namespace-tenant": lambda: guards.problems(
            a_review(moved, "UPDATE", old_object=HOME, user=bob), trust=guards.TrustedUsers()
        ),
        "gang-size": lambda: guards.problems(
            a_review(
                scale,
                "UPDATE",
                resource="deployments",
                subresource="scale",
                old_object={**scale, "spec": {"replicas": 4}},
            ),
            trust=guards.TrustedUsers(),
            scaled=deployment,
        ),
    }
    return {name: make() for name, make in situations.items()}


@pytest.mark.parametrize("name", guarded())
def test_a_guard_is_on_the_page(name: str) -> None:
    [problem] = guarded()[name]
    line = problem.line("kubenexus")
    assert (problem.rule, on_page(line)) == (name, True), line


TENANT = """
apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: research}
spec:
  tenant: {name: research, tier: gold}
  gang: {minSize: 2, maxSize: 64}
  numa: {allowed: [none, best-effort]}
"""
LIMITED: Final[dict[str, Json]] = {
    compiled.GANG_MAX: a_pod("train", labels=in_gang("train", 128)),
    compiled.GANG_MIN: a_pod("train", labels=in_gang("train", 1)),
    compiled.NUMA_ALLOWED: annotated(vocabulary.NUMA_POLICY_ANNOTATION, "isolated"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_of_a_tenant_is_on_the_page(name: str, tmp_path: Path) -> None:
    policies = with_policy(TENANT, tmp_path)
    got = refusals(decide.validate(a_review(LIMITED[name]), Facts(HOME), policies, now=NOW))
    assert [line for line in got if not on_page(line)] == []
    assert [line.split(":")[0] for line in got] == [f"research/{name}"]


def pod_of(**more: Any) -> SchedulerPod:
    obj = a_pod("train-0", labels=in_gang("train", 4), **more)
    obj["metadata"]["uid"] = "u"
    return SchedulerPod.read(obj)


SINGLE: Final = f"{vocabulary.NO_SINGLE_NUMA_NODE}: need cpu 8, gpu 6; largest free cpu 32, gpu 4"


def nearness() -> list[str]:
    """What is said about topology levels, fabrics and tiers."""
    clique = vocabulary.GPU_CLIQUE_LABEL
    nodes = [
        a_node("n0", gpus=3, labels={clique: "a"}),
        a_node("n1", gpus=2),
        a_node("n2", gpus=1, labels={clique: "b"}),
    ]
    snapshot = Snapshot.of(nodes)
    required = {vocabulary.REQUIRE_CLIQUE_ANNOTATION: "true"}
    pods = a_gang(4, name="train", gpus=1, cpu="1m", annotations=required)
    plan = planner.plan(units.units(pods)[0], snapshot)
    assert isinstance(plan, NoFit)
    unknown = {vocabulary.CO_LOCATE_ANNOTATION: "strict:row"}
    row = a_gang(2, annotations=unknown)[0].spec.fabric
    nowhere = colocation.DomainIndex.of(snapshot.table.codes("none"), snapshot.table.rank)
    shares = [colocation.DomainConstraint("clique", nowhere, pin) for pin in (0, 1)]
    tiers_of = a_node("n", labels={vocabulary.RESERVED_TIER_LABEL: "gold"})
    other = a_node("m", labels={vocabulary.RESERVED_TIER_LABEL: "platinum"})
    picture = Snapshot.of([tiers_of, other])
    return [
        plan.text,
        *(share.outside_reason for share in shares),
        fabric.below(3),
        fabric.unknown_level(snapshot.tables, row),
        *(text for text, _ in picture.placement_policy.static_filter(pods[0].spec)),
        "node(s) had a hardware tier that bronze may not use",
        events.policies_refused(Fault("REASON", 0, 0, "", "")).note.removesuffix(": "),
    ]


def scheduler_texts() -> list[str]:
    gang = GangCount("train", 3, 4, "pods exist")
    waits = units.Unit(units.key_of(pod_of()), (pod_of(),))
    half = PartialGang(waits.key, (pod_of(),), 4, 10.2, True)  # type: ignore[arg-type]  # a gang's key
    vram = f"{vocabulary.INSUFFICIENT_VRAM}: need 80Gi per GPU, largest 40Gi"
    claims = unsupported_claims({"resourceClaims": [{}]})
    return [
        gang.text,
        f"{units.forming_count(waits).text}, timed out after {waits.timeout:g}s",
        NoFit(6, (("Insufficient nvidia.com/gpu", 5), (SINGLE, 1))).text,
        NoFit(3, message=vocabulary.NO_NUMA_TOPOLOGY).text,
        NoFit(2, ((vram, 2),)).text,
        NoFit().text,
        GangCount("train", 2, 4, "members fit").text,
        *(unsupported_text(claim) for claim in claims),
        *nearness(),
        events.released_note(half),
        events.gang_retained(pod_of(), half, bare=True).note,
        events.failed_binding(pod_of(), "REASON").note,
        events.rejected_binding(pod_of(), "REASON", retry_after=300.0).note,
        events.gate_not_removed(pod_of(), "REASON").note,
        f"requests {vocabulary.VRAM_ANNOTATION} without a GPU",
        OverQuota(
            "vision",
            Excess("research", "cpu", 2000, 3000, 4000, is_group=True),
            (("language", 8000),),
        ).text,
        OverQuota(
            "vision",
            Excess("vision", "cpu", 2000, 1000, 4000),
            reserved=("team-a/train", 2000),
        ).text,
        events.preempted(pod_of(), waits, PreemptionReason.PRIORITY).note,
        events.preempting(waits, [pod_of()]).note,
        events.member_reservation_ended(pod_of(), "train", "REASON").note,
    ]


@pytest.mark.parametrize("text", scheduler_texts())
def test_every_scheduler_text_is_on_the_page(text: str) -> None:
    assert on_page(text), text


def test_what_why_answers_is_on_the_page() -> None:
    gpu_nodes = [a_node(f"gpu-{i}", cpu="64", memory="512Gi", gpus=8) for i in range(2)]
    snapshot = Snapshot.of([*gpu_nodes, a_node("cpu-0", cpu="16", memory="64Gi")])
    pods = a_gang(3, name="train", cpu="8", gpus=8)
    unit = units.Unit(units.key_of(pods[0]), tuple(pods))
    plan = planner.plan(unit, snapshot)
    assert isinstance(plan, NoFit)
    view = UnitView(unit, QueueState.UNSCHEDULABLE, 3, 0.0, 0.0, plan)
    members = [(pod, "") for pod in pods]
    found = response.answer(Inspection(pods[0], view), snapshot, Memo(), members=members, now=130.0)
    said = "\n".join(render.lines(found)).replace("ns/", "team-a/")
    assert f"$ kubenexus why pod/train-0 -n team-a\n{said}\n" in PAGE, said


def reasons() -> list[str]:
    modules = (
        filters, allocator, affinity, nodes, node_ports, topology_spread, volume_rules, pod_claims, csi_limits, binding, conditions
    )  # fmt: skip
    texts = {
        value
        for module in modules
        for key, value in vars(module).items()
        if key.isupper() and not key.startswith("_") and isinstance(value, str) and " " in value
    }
    return sorted(text.removeprefix("%s ") for text in texts)


@pytest.mark.parametrize("text", reasons())
def test_every_reason_of_a_node_is_on_the_page(text: str) -> None:
    assert f"`{text}`" in PAGE


RULE: Final = re.compile(
    r"""(?:Problem|Note|_problem|_unusable|refused)\(\s*"([a-z-]+)\""""
    r"""|"((?:gang|numa)-[a-z-]+|vram|duration)"[,)]|BUILTIN,\s*"([a-z-]+)",""",
)


def test_every_rule_of_the_code_has_its_paragraph() -> None:
    from policies.engine import classify, object_evaluator
    from policies.pods import intent
    from webhook.serve import app

    sources = (intent, gang_checks, classify, object_evaluator, guards, tenant_claims, decide, app)
    text = "\n".join(Path(str(module.__file__)).read_text() for module in sources)
    known = {name for row in RULE.findall(text) for name in row if name} | set(compiled.BUILT_IN)
    known -= {"fallback"}  # what classifies a pod, and refuses none
    documented = set(re.findall(r"^### `([a-z-]+)`", PAGE, re.M))
    assert len(known) > 30
    assert known - documented == set()
