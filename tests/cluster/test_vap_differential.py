"""
Our engine against the API server's own: the same rule over the same pod, the same verdict.

Each expression becomes a ValidatingAdmissionPolicy that matches only pods with its label. A pod is
created with `dryRun=All` under that label, and the server's answer (allowed, denied, an error, or
the policy refused as such) is compared with ours on the very object that the server judged.
"""

import time
from collections import Counter
from typing import Any, Final

import pytest

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from policies.cel import engines, protocol
from policies.cel.protocol import Activation, CompileError, EvaluationError
from tests.cluster import vap_cases

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = f"{GROUP}/validatingadmissionpolicies"
BINDINGS: Final = f"{GROUP}/validatingadmissionpolicybindings"
CASE: Final = "vap-case"
DENIED: Final = "the rule says no"

# Where we differ on purpose, with the reason; an entry that is no longer needed fails the test.
UNKNOWN_TYPE: Final = "the server takes no rule whose type is known only when it runs"
MORE: Final = "the server does not have this function"
MIXED: Final = "the server takes no literal of mixed types"
BY_VALUE: Final = "the server compares how a quantity was written, we compare its amount"
MAPS: Final = "maps of a 1.37 server raise where the language, and older servers, say false"
DIFFERENCES: Final = {
    "object.spec.hostNetwork": UNKNOWN_TYPE,
    "object.spec.containers[0].name": UNKNOWN_TYPE,
    "object.spec.contaners": UNKNOWN_TYPE,
    "params == null": "the server has params only with a paramKind",
    "cel.bind(n, object.spec.containers.size(), n > 1 && n < 3)": MORE,
    "math.greatest(1, 2) == 2": MORE,
    "dyn(quantity('0').sign()) == dyn(0)": MORE,
    "dyn([1, 2].includes(2)) == dyn(true)": MORE,
    "dyn('a'.includes('a')) == dyn(true)": MORE,
    "dyn(jsonpatch.escapeKey('k8s.io/my~label')) == dyn('k8s.io~1my~0label')": MORE,
    "dyn(cel.bind(x, 2, x * x)) == dyn(4)": MORE,
    "dyn(math.greatest(1, 3, 2)) == dyn(3)": MORE,
    "dyn(base64.decode('aGVsbG8=') == b'hello') == dyn(true)": MORE,
    "dyn(regex.extract('a1', '[0-9]').orValue('')) == dyn('1')": MORE,
    "dyn(quantity('9223372036854775807').isInteger()) == dyn(true)": BY_VALUE,
    "dyn(quantity('99999999999999999999').isInteger()) == dyn(true)": BY_VALUE,
    "dyn(quantity('-1.5Gi').asInteger()) == dyn(-1610612736)": BY_VALUE,
    "dyn(quantity('100n').asApproximateFloat()) == dyn(1e-07)": BY_VALUE,
    "[1, 'a'].size() == 2": MIXED,
    "dyn(dyn([1, 'a']).min()) == dyn(1)": MIXED,
    "dyn(1) in dyn(object.metadata.labels)": MAPS,
    "dyn(object.spec.nodeSelector) == dyn(1)": MAPS,
}


def policy(name: str, source: str) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {CASE: name}},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            },
            "validations": [{"expression": source, "message": DENIED}],
        },
    }


def binding(name: str) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


class Server:
    """The API server as an oracle."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def install(self, sources: dict[str, str]) -> set[str]:
        """Create the policies; the names of those that the server refuses."""
        refused = set()
        for name, source in sources.items():
            try:
                self._api.call("POST", POLICIES, policy(name, source))
            except CallFailed as error:
                if error.status != 422:
                    raise
                refused.add(name)
        # Bindings come last: once the sentinel's is in force, so are all before it.
        for name in [*sources, "sentinel"]:
            if name == "sentinel":
                self._api.call("POST", POLICIES, policy(name, "false"))
            if name not in refused:
                self._api.call("POST", BINDINGS, binding(name))
        end = time.monotonic() + 60
        while self.verdict("sentinel", vap_cases.PODS["plain"]) != "deny":
            assert time.monotonic() < end, "the policies are not in force after 60 s"
            time.sleep(0.1)
        return refused

    def remove(self, names: set[str]) -> None:
        for name in names:
            for path in (BINDINGS, POLICIES):
                self._api.call("DELETE", f"{path}/{name}")

    def judged(self, pod: Object) -> Object:
        """The pod as admission sees it: with defaults and what the server's own plugins add."""
        return self._create(pod, "none")

    def verdict(self, case: str, pod: Object) -> str:
        try:
            self._create(pod, case)
        except CallFailed as error:
            if "denied request" not in str(error):
                raise
            return "deny" if DENIED in str(error) else "error"
        return "allow"

    def namespace(self) -> Object:
        return self._api.call("GET", f"/api/v1/namespaces/{self._namespace}")

    def _create(self, pod: Object, case: str) -> Object:
        path = f"/api/v1/namespaces/{self._namespace}/pods?dryRun=All"
        return self._api.call("POST", path, labelled(pod, case))


def labelled(pod: Object, case: str) -> Object:
    metadata = pod.get("metadata", {})
    labels = {**metadata.get("labels", {}), CASE: case}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": "probe", "labels": labels},
        "spec": pod["spec"],
    }


class Ours:
    """Our engine under the same question."""

    def __init__(self, namespace: Object) -> None:
        self._engine = engines.engine("cel-expr-python")
        self._namespace = namespace

    def verdict(self, source: str, pod: Object) -> str:
        try:
            program = self._engine.compile(source, protocol.ADMISSION)
        except CompileError:
            return "refused"
        request = {
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": self._namespace["metadata"]["name"],
            "userInfo": {"username": "admin"},
            "dryRun": True,
        }
        values: dict[str, object] = {
            "object": pod,
            "oldObject": None,
            "request": request,
            "namespaceObject": self._namespace,
            "params": None,
        }
        try:
            return "allow" if protocol.evaluate_bool(program, Activation(values)) else "deny"
        except EvaluationError:
            return "error"


def test_the_server_and_our_engine_agree(control_plane: ControlPlane, namespace: str) -> None:
    server = Server(control_plane.api(), namespace)
    cases = {f"case-{number}": case for number, case in enumerate(vap_cases.cases())}
    refused = server.install({name: case.expression for name, case in cases.items()})
    ours = Ours(server.namespace())
    try:
        judged = {pod: server.judged(body) for pod, body in vap_cases.PODS.items()}
        pairs: dict[tuple[str, str], tuple[str, str]] = {}  # (rule, pod) -> (server, ours)
        for name, case in cases.items():
            for pod in case.pods:
                labels = judged[pod]["metadata"].setdefault("labels", {})
                labels[CASE] = name
                theirs = "refused" if name in refused else server.verdict(name, vap_cases.PODS[pod])
                mine = ours.verdict(case.expression, judged[pod])
                pairs[case.expression, pod] = theirs, mine
    finally:
        server.remove(set(cases) - refused | {"sentinel"})
    differing = {pair: said for pair, said in pairs.items() if said[0] != said[1]}
    unexplained = [
        f"{rule} over {pod}: the server says {theirs}, we say {mine}"
        for (rule, pod), (theirs, mine) in differing.items()
        if rule not in DIFFERENCES
    ]
    always = {rule for rule, why in DIFFERENCES.items() if why != MAPS}
    idle = always - {rule for rule, _ in differing}
    verdicts = Counter(theirs for theirs, _ in pairs.values())
    assert not unexplained, "\n".join(unexplained)
    assert not idle, "agreed on by now"
    assert len(pairs) >= 300
    # A generator that only ever allows would prove nothing.
    assert min(verdicts[v] for v in ("allow", "deny", "error", "refused")) >= 5, verdicts
