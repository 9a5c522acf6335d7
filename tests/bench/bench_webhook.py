"""
`make bench-webhook`: what admission costs a cluster, side by side in one run.

    handler     wrk posts AdmissionReviews of pods straight to the webhook
    end to end  wrk creates pods at a real API server, with dryRun=All and for real:
                none        no admission at all
                vap         the 16 rules as ValidatingAdmissionPolicies, inside the API server
                validate-1  ours, validating only, one worker; validate-2: two workers
                both-1      ours, mutating and validating, one worker

Arms take turns and are repeated, all dry runs before the first pod is made for real; figures are
medians of the runs, as shares of `none`. Loader, API server, etcd and webhook share the machine;
nothing else runs on it: controllers end once the namespace is made. The rules and the pod are those of
`tests/data/pod-rules.json`, plus the policies that ship. No two requests are alike: each has a
number of its own in its uid, in the pod's name and in one of its labels.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.binaries.progress import Lines
from kubenexus.dev.plane import key_files
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child
from policies import vocabulary
from policies.engine import loader
from tests.bench import rows, webhook_report
from tests.bench.wrk import Load, load
from webhook.registration import configurations

Json = dict[str, Any]
DATA = json.loads((Path(__file__).parents[1] / "data" / "pod-rules.json").read_text())
NAMESPACE, TOKEN = "bench", "bench-token"
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "6"))
CONNECTIONS = 16

NUMBER = "@number@"  # stands in a body where each request has a number of its own
REQUEST = """
local parts, number = {{{parts}}}, 0
local headers = {{["Content-Type"] = "application/json", ["Authorization"] = "Bearer {token}"}}
request = function()
  number = number + 1
  return wrk.format("POST", nil, headers, table.concat(parts, string.format("%08d", number)))
end
"""


def main() -> int:
    if shutil.which("wrk") is None:
        print("bench-webhook needs wrk on PATH (Debian: apt-get install wrk)", file=sys.stderr)
        return 2
    binaries = locate.get(versions.DEFAULT_KUBERNETES, env=os.environ, show=Lines(print))
    with tempfile.TemporaryDirectory(prefix="bench-webhook-") as name:
        folder = Path(name)
        tokens = folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},loader,loader,"system:masters"\n')
        plane = ControlPlane(
            binaries=binaries,
            folder=folder / "plane",
            for_tests=True,
            apiserver_flags=(f"--token-auth-file={tokens}",),
        )
        with plane:
            return Bench(plane, folder).run()


def _numbered(body: Json, number: str) -> Json:
    numbered: Json = json.loads(json.dumps(body).replace(NUMBER, number))
    return numbered


def _script(body: Json) -> str:
    """For wrk: the body, with the next number for each request."""
    parts = ", ".join(f"[==[{part}]==]" for part in json.dumps(body).split(NUMBER))
    return REQUEST.format(parts=parts, token=TOKEN)


class Bench:
    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.rules = folder / "rules.yaml"
        spec = {
            "validations": [
                {**rule, "message": f"{rule['name']} does not hold"} for rule in DATA["rules"]
            ]
        }
        policy = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "PlatformPolicy",
            "metadata": {"name": "pod-rules"},
            "spec": spec,
        }
        self.rules.write_text(json.dumps(policy))
        plane.api().apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        while not plane.has_default_account(NAMESPACE):
            pass
        for child in plane.children:
            if child.name not in ("etcd", "kube-apiserver"):
                child.stop()

    def run(self) -> int:
        handler = self._handler()
        arms: dict[str, Callable[[], contextlib.AbstractContextManager[Child | None]]] = {
            "none": lambda: contextlib.nullcontext(None),
            "vap": self._vap,
            "validate-1": lambda: self._ours(workers=1, mutating=False),
            "validate-2": lambda: self._ours(workers=2, mutating=False),
            "both-1": lambda: self._ours(workers=1, mutating=True),
        }
        dry = self._rounds(arms, lambda child: self._create(child))
        real = self._rounds(arms, lambda child: self._create(child, dry_run=False, seconds=2))
        print(f"none: {webhook_report.note(dry['none'])}")
        return rows.publish("webhook", webhook_report.report(handler, dry, real))

    def _rounds(
        self,
        arms: dict[str, Callable[[], contextlib.AbstractContextManager[Child | None]]],
        measure: Callable[[Child | None], Load],
    ) -> dict[str, list[Load]]:
        """The arms in rotated order, `RUNS` times."""
        loads: dict[str, list[Load]] = {name: [] for name in arms}
        names = list(arms)
        for number in range(RUNS):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                with arms[name]() as child:
                    self._check(name)
                    self._create(child, seconds=1)  # fills caches and connections
                    loads[name].append(measure(child))
                self._clear()
        return loads

    def _clear(self) -> None:
        """The pods that were made for real would slow down the arms that come after."""
        api, path = self.plane.api(), f"/api/v1/namespaces/{NAMESPACE}/pods"
        while pods := api.call("GET", f"{path}?limit=500")["items"]:
            api.each(
                lambda pod: api.call(
                    "DELETE", f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0"
                ),
                pods,
            )

    # --- arms ---

    @contextlib.contextmanager
    def _vap(self) -> Iterator[None]:
        made = []
        for rule in DATA["rules"]:
            policy = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": f"bench-{rule['name']}"},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {
                        "resourceRules": [
                            {
                                "apiGroups": [""],
                                "apiVersions": ["v1"],
                                "resources": ["pods"],
                                "operations": ["CREATE"],
                            }
                        ]
                    },
                    "validations": [{"expression": rule["expression"]}],
                },
            }
            binding = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": f"bench-{rule['name']}"},
                "spec": {"policyName": f"bench-{rule['name']}", "validationActions": ["Deny"]},
            }
            made += [policy, binding]
        with self._applied(made):
            yield None

    @contextlib.contextmanager
    def _ours(self, *, workers: int, mutating: bool) -> Iterator[Child]:
        with self._webhook(workers) as (child, url):
            registered = configurations.configurations(
                ca_pem=self.plane.ca.certificate, base_url=url, schedulers=("bench",)
            )
            with self._applied(registered if mutating else registered[1:]):
                yield child

    @contextlib.contextmanager
    def _webhook(self, workers: int) -> Iterator[tuple[Child, str]]:
        port, metrics = ports.free(2)
        pair = key_files.serving(self.plane.ca, vocabulary.WEBHOOK_NAME, now=datetime.now(UTC))
        cert, key = self.folder / "tls.crt", self.folder / "tls.key"
        key_files.write_private(cert, pair.certificate)
        key_files.write_private(key, pair.key)
        child = Child(
            "webhook",
            [
                *self_exec.COMMAND,
                "webhook",
                f"--kubeconfig={self.plane.kubeconfig(vocabulary.WEBHOOK_NAME)}",
                f"--host={ports.HOST}",
                f"--port={port}",
                f"--metrics-port={metrics}",
                f"--cert-file={cert}",
                f"--key-file={key}",
                f"--workers={workers}",
                f"--policies={loader.LIBRARY}",
                f"--policies={self.rules}",
            ],
            log=self.folder / "webhook.log",
            env=self_exec.environment(os.environ),
        )
        child.start()
        try:
            url = f"https://{ports.HOST}:{port}"
            await_ready([child], lambda: healthy(f"{url}/readyz"), deadline=60)
            yield child, url
        finally:
            child.stop(grace=15)

    @contextlib.contextmanager
    def _applied(self, objects: list[Json]) -> Iterator[None]:
        api = self.plane.api()
        made = []
        try:
            for item in objects:
                plural = item["kind"].lower()
                plural = plural[:-1] + "ies" if plural.endswith("y") else plural + "s"
                path = f"/apis/{item['apiVersion']}/{plural}"
                api.call("POST", path, item)
                made.append(f"{path}/{item['metadata']['name']}")
            yield
        finally:
            for path in reversed(made):
                api.call("DELETE", path)

    # --- loads ---

    def _pod(self, *, good: bool = True) -> Json:
        pod = json.loads(json.dumps(DATA["pod" if good else "pod_refused_by_images_tagged"]))
        del pod["metadata"]["name"]
        pod["metadata"] |= {"namespace": NAMESPACE, "generateName": f"p{NUMBER}-"}
        pod["metadata"]["labels"]["app"] = f"web-{NUMBER}"
        found: Json = pod
        return found

    def _check(self, arm: str) -> None:
        """The arm refuses what breaks a rule: otherwise its speed says nothing."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        wanted = "admitted" if arm == "none" else "refused"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                self.plane.api().call("POST", path, _numbered(self._pod(good=False), "0"))
                verdict = "admitted"
            except Exception as exc:
                verdict = "refused" if "tagged" in str(exc) else "failed"
            if verdict == wanted:
                return
            time.sleep(0.05)  # the API server takes over a changed configuration in its own time
        raise SystemExit(f"{arm}: a pod that breaks a rule was not treated as it should be")

    def _create(self, child: Child | None, *, dry_run: bool = True, seconds: int = SECONDS) -> Load:
        script = _script(self._pod())
        query = "?dryRun=All" if dry_run else ""
        url = f"{self.plane.server}/api/v1/namespaces/{NAMESPACE}/pods{query}"
        return self._load(url, script, child, connections=CONNECTIONS, seconds=seconds)

    def _handler(self) -> list[Load]:
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"0b4a1f9e-5f0c-4f0e-8a4a-0d5c{NUMBER}",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": NAMESPACE,
                "operation": "CREATE",
                "userInfo": {"username": "loader"},
                "object": self._pod(),
            },
        }
        script = _script(review)
        with self._webhook(1) as (child, url):
            self._load(f"{url}/validate", script, child, connections=8, seconds=1)
            return [
                self._load(f"{url}/validate", script, child, connections=8, seconds=SECONDS)
                for _ in range(RUNS)
            ]

    def _load(
        self, url: str, script: str, child: Child | None, *, connections: int, seconds: int
    ) -> Load:
        path = self.folder / "load.lua"
        path.write_text(script)
        return load(url, script=path, beside=child, connections=connections, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
