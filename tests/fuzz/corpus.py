"""
Valid AdmissionReviews to start from: every path through the webhook has one.

As bytes, so that each mutation starts from its own value.
"""

import json
from typing import Any

from policies import vocabulary
from tests.builders import a_container, a_job, a_pod, a_template, in_gang

Json = dict[str, Any]

_NUMA = {
    vocabulary.NUMA_POLICY_ANNOTATION: "single-numa",
    "numa.scheduling.kubenexus.io/resources": "cpu,memory,nvidia.com/gpu",
    "scheduling.kubenexus.io/numa-affinity-node-id": "0,1",
    "scheduling.kubenexus.io/numa-distance-weight": "50",
    vocabulary.VRAM_ANNOTATION: "80Gi",
    "scheduling.kubenexus.io/expected-duration": "1h30m",
}
_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}


def seeds() -> list[bytes]:
    """One review a situation."""
    return [json.dumps(value).encode() for value in _reviews()]


def _reviews() -> list[Json]:
    pod = a_pod("rich", labels=in_gang("g", 4), annotations=dict(_NUMA), **_rich_spec())
    owned = a_pod(labels=in_gang("g", None))
    owned["metadata"] |= {"ownerReferences": [dict(_OWNER)], "generateName": "j-"}
    gated = a_pod(labels={"a": "b"}, schedulingGates=[{"name": "scheduling.kubenexus.io/gang"}])
    stamped = {vocabulary.TENANT_LABEL: "a", vocabulary.TIER_LABEL: "gold"}
    return [
        _review("Pod", "pods", pod),
        _review("Pod", "pods", a_pod()),
        _review("Pod", "pods", owned),
        _review("Pod", "pods", a_pod(labels=stamped), old=gated, operation="UPDATE"),
        _review("Pod", "pods", pod, old=a_pod(labels=stamped), operation="UPDATE", sub="resize"),
        _review("Pod", "pods", pod, old=pod, operation="UPDATE", sub="ephemeralcontainers"),
        _review("Pod", "pods", pod, old=a_pod(), operation="UPDATE", sub="status"),
        _review("Binding", "pods", _binding(), sub="binding"),
        _review("Job", "jobs", a_job(pod=pod, parallelism=4, completions=8), group="batch"),
        _review(
            "CronJob",
            "cronjobs",
            _with_spec("batch/v1", "CronJob", jobTemplate={"spec": a_job(pod=owned)["spec"]}),
            group="batch",
        ),
        _review(
            "Deployment",
            "deployments",
            _with_spec("apps/v1", "Deployment", replicas=3, template=a_template(pod)),
            group="apps",
            operation="UPDATE",
            old=_with_spec("apps/v1", "Deployment", replicas=1, template=a_template(owned)),
        ),
        _review("PyTorchJob", "pytorchjobs", _pytorch(pod), group="kubeflow.org"),
        _review("RayCluster", "rayclusters", _ray(pod), group="ray.io"),
        _review(
            "Namespace", "namespaces", _namespace("b"), old=_namespace("a"), operation="UPDATE"
        ),
        _review("Pod", "pods", None, old=pod, operation="DELETE"),
        _review("Service", "services", None, old=_with_spec("v1", "Service"), operation="DELETE"),
        _review("Service", "services", _with_spec("v1", "Service", ports=[{"port": 80}])),
        _review(
            "PodExecOptions",
            "pods",
            {"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"]},
            operation="CONNECT",
            sub="exec",
        ),
        _review(
            "Scale",
            "deployments",
            _scale(2),
            group="autoscaling",
            old=_scale(8),
            operation="UPDATE",
            sub="scale",
            of="apps",
        ),
        _review("Pod", "pods", _ending("a"), old=_ending("a", "b"), operation="UPDATE"),
        _review(
            "TenantPolicy", "tenantpolicies", _policy(), group=vocabulary.POLICY_GROUP, where=""
        ),
        _review("Unknown", "unknowns", {"spec": {"template": a_template(pod)}}, group="x.io"),
    ]


def _review(
    kind: str,
    resource: str,
    obj: Json | None,
    *,
    group: str = "",
    old: Json | None = None,
    operation: str = "CREATE",
    sub: str = "",
    of: str | None = None,
    where: str = "team-a",
) -> Json:
    """Of `kind` of `group`, at a resource of the same group or, as a Scale is, `of` another."""
    speaks = {"group": group, "version": "v1"}
    at = {"group": group if of is None else of, "version": "v1"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {**speaks, "kind": kind},
            "resource": {**at, "resource": resource},
            "requestKind": {**speaks, "kind": kind},
            "requestResource": {**at, "resource": resource},
            "subResource": sub,
            "name": "p",
            "namespace": "" if kind == "Namespace" else where,
            "operation": operation,
            "userInfo": {
                "username": "ada",
                "uid": "u",
                "groups": ["system:authenticated"],
                "extra": {"k": ["v"]},
            },
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _rich_spec() -> Json:
    gpu = a_container("gpu", cpu="8", memory="64Gi") | {
        "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80}],
        "securityContext": {"privileged": False, "runAsNonRoot": True},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    gpu["resources"] |= {"limits": {"nvidia.com/gpu": "1", "cpu": "8"}}
    return {
        "containers": [gpu, a_container("side", cpu="500m")],
        "initContainers": [a_container("init", cpu="1") | {"restartPolicy": "Always"}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                    ]
                }
            }
        },
        "priorityClassName": "high",
        "schedulerName": "default-scheduler",
        "overhead": {"cpu": "100m"},
    }


def _with_spec(version: str, kind: str, **spec: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def _scale(count: int) -> Json:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "p", "namespace": "team-a"},
        "spec": {"replicas": count},
    }


def _ending(*finalizers: str) -> Json:
    pod = a_pod(labels=in_gang("g", 4))
    pod["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": list(finalizers),
    }
    return pod


def _policy() -> Json:
    """One that can be served beside those of the target."""
    rule = {
        "name": "owned",
        "expression": "'owner' in variables.labels",
        "messageExpression": "'not ' + object.metadata.name",
    }
    variable = {"name": "labels", "expression": "object.?metadata.?labels.orValue({})"}
    policy = _with_spec(
        vocabulary.POLICY_API_VERSION,
        "TenantPolicy",
        tenant={"name": "z", "tier": "bronze"},
        namespaceSelector={"matchLabels": {vocabulary.TENANT_LABEL: "z"}},
        matchConstraints={"kinds": ["Pod", "apps/Deployment"], "operations": ["CREATE"]},
        variables=[variable],
        validations=[rule],
        defaults=[{"when": "gpus(object) > 0", "set": {"nodeSelector": {"pool": "gpu"}}}],
    )
    return policy


def _binding() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "team-a", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "n"},
    }


def _pytorch(pod: Json) -> Json:
    replica = {"replicas": 1, "restartPolicy": "Never", "template": a_template(pod)}
    specs = {"Master": dict(replica), "Worker": replica | {"replicas": 3}}
    return _with_spec(
        "kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=specs, runPolicy={"suspend": False}
    )


def _ray(pod: Json) -> Json:
    group = {"groupName": "g", "replicas": 2, "minReplicas": 1, "template": a_template(pod)}
    return _with_spec(
        "ray.io/v1",
        "RayCluster",
        headGroupSpec={"template": a_template(a_pod())},
        workerGroupSpecs=[group],
    )


def _namespace(tenant: str) -> Json:
    labels = {vocabulary.TENANT_LABEL: tenant, vocabulary.TIER_LABEL: "gold"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}}
