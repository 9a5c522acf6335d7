"""Builders of raw Kubernetes objects for tests: only what a situation is about has to be said."""

from typing import Any

from policies import vocabulary

Json = dict[str, Any]


def a_container(name: str = "main", **requests: str) -> Json:
    named = {key.replace("_", "/", 1).replace("__", "."): value for key, value in requests.items()}
    return {"name": name, "image": "registry.local/app:1", "resources": {"requests": named}}


def a_pod(
    name: str = "p",
    *,
    namespace: str = "team-a",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    containers: list[Json] | None = None,
    **spec: Any,
) -> Json:
    metadata: Json = {"name": name, "namespace": namespace}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers or [a_container(cpu="1")], **spec},
    }


def in_gang(name: str = "g", size: int | str | None = 4) -> dict[str, str]:
    labels = {vocabulary.GANG_NAME_LABEL: name}
    if size is not None:
        labels[vocabulary.GANG_MIN_AVAILABLE_LABEL] = str(size)
    return labels


def a_template(pod: Json) -> Json:
    metadata = {k: v for k, v in pod["metadata"].items() if k in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod["spec"]}


def a_job(name: str = "j", *, pod: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"},
        "spec": {"template": a_template(pod or a_pod()), **spec},
    }


def a_namespace(
    name: str = "team-a", *, tenant: str | None = None, tier: str | None = None
) -> Json:
    labels = {"kubernetes.io/metadata.name": name}
    if tenant:
        labels[vocabulary.TENANT_LABEL] = tenant
    if tier:
        labels[vocabulary.TIER_LABEL] = tier
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
