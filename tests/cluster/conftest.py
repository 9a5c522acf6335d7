"""
The real control plane under the cluster tests, one for the whole session of a worker.

    control_plane   etcd, kube-apiserver, kube-controller-manager and kwok, without nodes
    kubectl         kubectl(*args, user="admin", input=None) -> CompletedProcess
    namespace       the name of a fresh namespace, deleted afterwards
    stack           the webhook and the scheduler on top, with four plain nodes

Programs that are not in the cache are built; where that cannot be done the tests fail, with the
message that says what to do. They are never skipped.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from kubenexus.clusterfile import load
from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from kubenexus.dev.errors import DevError
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack

KUBERNETES = os.environ.get("KUBENEXUS_TEST_KUBERNETES", versions.DEFAULT_KUBERNETES)

# Modules that take longest, first: what is left when one worker has nothing more to do is short.
LONGEST = ("test_parity", "test_image", "test_chart_release", "test_gang_truth", "test_faults")

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    last = len(LONGEST)
    items.sort(
        key=lambda item: LONGEST.index(name) if (name := item.path.stem) in LONGEST else last
    )


class Kubectl(Protocol):
    def __call__(
        self, *args: str, user: str = "admin", input: str | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def kubernetes_binaries(pytestconfig: pytest.Config) -> Binaries:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    try:
        return locate.get(KUBERNETES, env=os.environ, show=Lines(say))
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)


@pytest.fixture(scope="session")
def control_plane(
    kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    folder: Path = tmp_path_factory.mktemp("control-plane")
    plane = ControlPlane(binaries=kubernetes_binaries, folder=folder, for_tests=True)
    try:
        plane.start()
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def kubectl(control_plane: ControlPlane) -> Kubectl:
    def run(
        *args: str, user: str = "admin", input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return control_plane.kubectl(*args, user=user, input=input)

    return run


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = f"test-{next(_numbers)}"
    api = control_plane.api()
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Controllers that lost their API server come back in their own time, up to half a minute.
    end = time.monotonic() + 120
    while not control_plane.has_default_account(name):
        assert time.monotonic() < end, f"namespace {name} got no service account within 120 s"
        time.sleep(0.02)
    yield name
    # Pods end at once; the rest of the namespace is deleted in its own time.
    api.call("DELETE", f"/api/v1/namespaces/{name}")


# A module at a time: tests that do not use it find no webhook registered.
@pytest.fixture(scope="module")
def stack(control_plane: ControlPlane) -> Iterator[Stack]:
    control_plane.add_nodes(load.plain(4).nodes)
    running = Stack(control_plane)
    try:
        running.start()
    except DevError as exc:
        pytest.fail(str(exc), pytrace=False)
    yield running
    running.stop()
