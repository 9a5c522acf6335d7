"""Workloads of a hostile user: every kind that admission knows templates of, with drawn counts."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.hostile import pods
from tests.hostile.values import Draw

Json = dict[str, Any]
Template = Callable[..., Json]  # a drawn pod template; keywords go into its spec


def _count(draw: Draw) -> int:
    """A number of pods: few, mostly, because each template is drawn for what is in it."""
    return draw.count(5) if draw.chance(0.8) else draw.int32()


def _selecting(draw: Draw, template: Template, **more: Any) -> Json:
    """The kinds that select their pods; the selector matches what the template carries."""
    found = template()
    selector = {"matchLabels": {"app": found["metadata"]["labels"]["app"]}}
    return {"selector": selector, "template": found, **more}


def _replicated(draw: Draw, template: Template) -> Json:
    return _selecting(draw, template, replicas=_count(draw))


def _stateful(draw: Draw, template: Template) -> Json:
    order = draw.pick(("Parallel", "OrderedReady"))
    return _selecting(
        draw, template, replicas=_count(draw), serviceName="s", podManagementPolicy=order
    )


def _controller(draw: Draw, template: Template) -> Json:
    found = template()
    selector = {"app": found["metadata"]["labels"]["app"]}
    return {"selector": selector, "template": found, "replicas": _count(draw)}


def _job(draw: Draw, template: Template) -> Json:
    found: Json = {
        "parallelism": _count(draw),
        "completions": _count(draw),
        "template": template(restartPolicy="Never"),
    }
    if draw.chance(0.3):
        found |= {"backoffLimit": draw.int32(), "ttlSecondsAfterFinished": draw.int32()}
    if draw.chance(0.3):
        found |= {"completionMode": "Indexed", "activeDeadlineSeconds": draw.int64()}
    return found


def _cron_job(draw: Draw, template: Template) -> Json:
    schedule = draw.text(1000) if draw.odd(0.5) else draw.pick(("* * * * *", "0 0 1 1 *"))
    return {"schedule": schedule, "jobTemplate": {"spec": _job(draw, template)}}


def _job_set(draw: Draw, template: Template) -> Json:
    jobs = [
        {"name": f"j{i}", "replicas": _count(draw), "template": {"spec": _job(draw, template)}}
        for i in range(1 + draw.count(20))
    ]
    return {"replicatedJobs": jobs}


def _kubeflow(field: str) -> Callable[[Draw, Template], Json]:
    def spec(draw: Draw, template: Template) -> Json:
        roles = ("Master", "Worker", *(draw.name() for _ in range(draw.count(10))))
        found: Json = {
            field: {role: {"replicas": _count(draw), "template": template()} for role in roles}
        }
        if draw.chance(0.3):
            found["elasticPolicy"] = {"minReplicas": _count(draw), "maxReplicas": _count(draw)}
        return found

    return spec


def _ray(draw: Draw, template: Template) -> Json:
    groups = [
        {
            "groupName": f"w{i}",
            "replicas": _count(draw),
            "numOfHosts": _count(draw),
            "template": template(),
        }
        for i in range(draw.count(20))
    ]
    return {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}


def _spark(draw: Draw, template: Template) -> Json:
    driver, executor = template()["metadata"], template()["metadata"]
    return {"driver": driver, "executor": {**executor, "instances": _count(draw)}}


def _leader_worker(draw: Draw, template: Template) -> Json:
    inner = {"size": _count(draw), "leaderTemplate": template(), "workerTemplate": template()}
    return {"replicas": _count(draw), "leaderWorkerTemplate": inner}


def _train_job(draw: Draw, template: Template) -> Json:
    overrides = [
        {"targetJobs": [{"name": draw.pick(("node", "launcher", draw.name()))}], **template()}
        for _ in range(1 + draw.count(20))
    ]
    return {"trainer": {"numNodes": _count(draw)}, "podTemplateOverrides": overrides}


def _volcano(draw: Draw, template: Template) -> Json:
    return {
        "tasks": [
            {"name": f"t{i}", "replicas": _count(draw), "template": template()}
            for i in range(1 + draw.count(20))
        ]
    }


Spec = Callable[[Draw, Template], Json]

# apiVersion and kind -> the spec of one.
KINDS: Final[Mapping[tuple[str, str], Spec]] = {
    ("apps/v1", "Deployment"): _replicated,
    ("apps/v1", "ReplicaSet"): _replicated,
    ("apps/v1", "StatefulSet"): _stateful,
    ("apps/v1", "DaemonSet"): _selecting,
    ("v1", "ReplicationController"): _controller,
    ("v1", "PodTemplate"): lambda draw, template: template(),
    ("batch/v1", "Job"): _job,
    ("batch/v1", "CronJob"): _cron_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
    ("kubeflow.org/v1", "PyTorchJob"): _kubeflow("pytorchReplicaSpecs"),
    ("kubeflow.org/v1", "TFJob"): _kubeflow("tfReplicaSpecs"),
    ("kubeflow.org/v1", "MPIJob"): _kubeflow("mpiReplicaSpecs"),
    ("kubeflow.org/v1", "XGBoostJob"): _kubeflow("xgbReplicaSpecs"),
    ("kubeflow.org/v1", "PaddleJob"): _kubeflow("paddleReplicaSpecs"),
    ("kubeflow.org/v1", "JAXJob"): _kubeflow("jaxReplicaSpecs"),
    ("ray.io/v1", "RayCluster"): _ray,
    ("ray.io/v1", "RayJob"): lambda draw, template: {"rayClusterSpec": _ray(draw, template)},
    ("ray.io/v1", "RayService"): lambda draw, template: {"rayClusterConfig": _ray(draw, template)},
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): _spark,
    ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"): lambda draw, template: {
        "template": _spark(draw, template)
    },
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _leader_worker,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): _train_job,
    ("batch.volcano.sh/v1alpha1", "Job"): _volcano,
}
# Most clusters have these, and their controllers make pods of them here.
BUILT_IN: Final = tuple(row for row in KINDS if row[0] in ("apps/v1", "batch/v1", "v1"))


def workload(draw: Draw, name: str, namespace: str, *, group: str) -> Json:
    api_version, kind = draw.pick(BUILT_IN if draw.chance(0.6) else tuple(KINDS))

    def template(**more: Any) -> Json:
        return pods.template(draw, group, {"app": name}, **more)

    made: Json = {"apiVersion": api_version, "kind": kind}
    made["metadata"] = {"name": name, "namespace": namespace}
    field = "template" if kind == "PodTemplate" else "spec"
    made[field] = KINDS[api_version, kind](draw, template)
    return made
