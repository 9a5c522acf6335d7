"""
One admission request as a value, and the pods that its object makes.

The policies for Pods evaluate a Pod itself. The policies that name its kind evaluate any other
object, and the policies for Pods evaluate each of its pod templates as the pod that it will become,
owned by the object: so an author learns at `apply` what the pods would meet later.
"""

from dataclasses import dataclass, field
from typing import Any

from policies.json_fields import Json, mapping
from policies.pods.intent import Intent
from policies.pods.workloads import PodTemplate, pods_of


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request; the objects stay raw JSON and are never changed."""

    operation: str
    kind: str
    object: Json | None
    group: str = ""
    version: str = "v1"
    subresource: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    namespace_object: Json | None = None
    old_object: Json | None = None
    user: Json = field(default_factory=dict)
    dry_run: bool = False
    templates: tuple[PodTemplate, ...] = ()
    intent: Intent | None = None
    """The pod's intent, where the caller has read it already."""
    queue_tier: str | None = None
    """Tier of the Kueue queue that the object names, where the caller has looked it up."""

    @classmethod
    def of(
        cls,
        obj: Json,
        *,
        operation: str = "CREATE",
        namespace: Json | None = None,
        old_object: Json | None = None,
        user: Json | None = None,
        queue_tier: str | None = None,
    ) -> "AdmissionRequest":
        """The request that brings `obj` into a cluster, for tools without an API server."""
        group, _, version = str(obj.get("apiVersion") or "v1").rpartition("/")
        metadata = mapping(obj.get("metadata"))
        own_namespace = str(mapping((namespace or {}).get("metadata")).get("name") or "")
        return cls(
            operation=operation,
            group=group,
            version=version,
            kind=str(obj.get("kind") or ""),
            namespace=str(metadata.get("namespace") or own_namespace),
            name=str(metadata.get("name") or ""),
            namespace_object=namespace,
            object=None if operation == "DELETE" else obj,
            old_object=obj if operation == "DELETE" else old_object,
            user=user or {},
            templates=tuple(pods_of(obj)),
            queue_tier=queue_tier,
        )

    @property
    def target(self) -> Json:
        """The object that the request is about: the new one, or the deleted one."""
        return self.object or self.old_object or {}

    @property
    def home(self) -> Json | None:
        """The namespace whose labels count; a Namespace object is its own."""
        own = self.kind == "Namespace" and not self.group
        return self.target if own else self.namespace_object

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod" and not self.group

    def request(self) -> dict[str, Any]:
        """What expressions see as `request`: Kubernetes' AdmissionRequest without the objects."""
        return {
            "uid": self.uid,
            "kind": {"group": self.group, "version": self.version, "kind": self.kind},
            "resource": {
                "group": self.group,
                "version": self.version,
                "resource": self.resource,
            },
            "subResource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": self.user,
            "dryRun": self.dry_run,
        }


def pod_from(admission: AdmissionRequest, template: PodTemplate) -> Json:
    """The pod that a template will become, owned by the object that holds it."""
    owner = admission.target
    metadata = mapping(template.pod.get("metadata"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{key: value for key, value in metadata.items() if value is not None},
            "namespace": admission.namespace,
            "ownerReferences": [
                {
                    "apiVersion": str(owner.get("apiVersion") or ""),
                    "kind": admission.kind,
                    "name": admission.name,
                    "uid": str(mapping(owner.get("metadata")).get("uid") or ""),
                    "controller": True,
                }
            ],
        },
        "spec": template.pod.get("spec") or {},
    }
