"""
The simulation in order. Pure: the same inputs and policies give the same result.

    1. namespaces, nodes and priority classes exist
    2. each workload is created; where it is admitted, its controller creates its pods
    3. the scheduler places the admitted pods that are its own, in the order of its queue
    4. the result has verdicts and placements in the order of the manifests
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubenexus.simulate import controllers, injected, place, result
from kubenexus.simulate.apiserver import AdmissionAnswer, ApiServer
from kubenexus.simulate.inputs import NAMESPACE, PRIORITY_CLASS, InputManifest, Inputs
from policies import quantity, vocabulary
from policies.engine.policyset import PolicySet
from policies.json_fields import JsonDict
from policies.pods import workloads
from scheduler.model.policy import PlacementTables


@dataclass(frozen=True, slots=True)
class Admitted:
    """One manifest after admission, with the pods that its controller then made."""

    manifest: InputManifest
    answer: AdmissionAnswer
    pods: tuple[AdmissionAnswer, ...] = ()


def simulate(inputs: Inputs, policies: PolicySet) -> result.Result:
    """Admit everything, then place what was admitted."""
    admitted = admit(inputs, inputs.manifests, policies)
    pods = [pod.obj for manifest in admitted for pod in manifest.pods if not pod.denials]
    placed = place.place(inputs.cluster.nodes, pods, PlacementTables.of(policies))
    return result.Result(
        totals(inputs.cluster.nodes),
        tuple(_manifest_result(manifest, placed) for manifest in admitted),
    )


def admit(
    inputs: Inputs, manifests: Iterable[InputManifest], policies: PolicySet
) -> list[Admitted]:
    """The workloads among these manifests, created in this order."""
    known = [manifest.obj for manifest in inputs.manifests if manifest.type == NAMESPACE]
    classes = [manifest.obj for manifest in inputs.manifests if manifest.type == PRIORITY_CLASS]
    server = ApiServer((*inputs.cluster.namespaces, *known), classes, policies=policies)
    return [_admit(manifest, server) for manifest in manifests if manifest.type in workloads.KINDS]


def _admit(manifest: InputManifest, server: ApiServer) -> Admitted:
    answer = server.create(manifest.obj)
    if answer.denials:
        return Admitted(manifest, answer)
    if answer.obj["kind"] == "Pod":
        return Admitted(manifest, answer, (answer,))
    try:
        made = controllers.pods(answer.obj)
    except controllers.TooManyError as exc:
        raise manifest.document.error(("spec",), str(exc)) from exc
    return Admitted(manifest, answer, tuple(server.create(pod, owner=answer.obj) for pod in made))


def _manifest_result(admitted: Admitted, placed: Mapping[str, result.Pod]) -> result.ManifestResult:
    metadata = admitted.answer.obj["metadata"]
    where = admitted.manifest.document.place()
    warnings = [text for answer in (admitted.answer, *admitted.pods) for text in answer.warnings]
    made = bool(admitted.pods) or bool(admitted.answer.denials)
    return result.ManifestResult(
        source=where.source,
        line=where.line,
        kind=str(admitted.answer.obj["kind"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        denials=admitted.answer.denials,
        warnings=tuple(dict.fromkeys(warnings)),
        notes=() if made else (controllers.why_none(admitted.answer.obj),),
        injected=injected.injected(
            (str(pod.obj["metadata"]["name"]), pod.changes)
            for pod in admitted.pods
            if not pod.denials
        ),
        pods=tuple(_pod(pod, placed) for pod in admitted.pods),
    )


def _pod(answer: AdmissionAnswer, placed: Mapping[str, result.Pod]) -> result.Pod:
    metadata = answer.obj["metadata"]
    if answer.denials:
        return result.Pod(metadata["name"], result.PodOutcome.DENIED, reasons=answer.denials)
    return placed[metadata["uid"]]


def totals(nodes: Iterable[JsonDict]) -> result.ClusterTotals:
    resources = ("cpu", "memory", *vocabulary.GPU_RESOURCES)
    sums: dict[str, int] = {}
    count = 0
    for node in nodes:
        count += 1
        for name, value in node["status"]["allocatable"].items():
            if name in resources:
                sums[name] = sums.get(name, 0) + quantity.amount(name, value)
    shown = {name: quantity.show(name, sums[name]) for name in resources if sums.get(name)}
    return result.ClusterTotals(count, shown)
