"""
Where the programs of a control plane come from, in this order:

    KUBEBUILDER_ASSETS   a folder of binaries; used when it has every program of the version
    the cache            what `build` made before, checked against its manifest
    a build              from the Go module proxy (see `build`)

`kubectl` is the one on PATH where there is one.

Other tools (`helm`) come from the cache or a build alone, so that one version is tested. They
do not depend on the Kubernetes version and have their own folders.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubenexus.dev import paths
from kubenexus.dev.binaries import build, versions
from kubenexus.dev.binaries.progress import Show
from kubenexus.dev.errors import BinariesUnavailable

ASSETS: Final = "KUBEBUILDER_ASSETS"
VERSION_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder that holds every program of one version."""

    folder: Path
    kubernetes: str
    kubectl: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)


def get(kubernetes: str, *, env: Mapping[str, str], show: Show) -> Binaries:
    """Find the programs, or build them. `BinariesUnavailable` when neither can be done."""
    programs = versions.programs(kubernetes)
    kubernetes = kubernetes.removeprefix("v")
    objection = assets_objection(kubernetes, env)
    if objection is None:
        return _at(Path(env[ASSETS]), kubernetes, env)
    if objection:
        show.note(objection)
    folder = paths.programs(env, kubernetes)
    try:
        build.ensure(programs, folder, cache=paths.cache(env), env=env, show=show)
    except BinariesUnavailable as exc:
        raise BinariesUnavailable("\n".join(filter(None, [str(exc), objection]))) from exc
    return _at(folder, kubernetes, env)


def tool(name: str, *, env: Mapping[str, str], show: Show) -> Path:
    """The folder of a tool, which is built when it is missing."""
    programs = versions.tool(name)
    folder = paths.programs(env, f"{name}-{programs[0].version}")
    build.ensure(programs, folder, cache=paths.cache(env), env=env, show=show)
    return folder


def assets_objection(kubernetes: str, env: Mapping[str, str]) -> str | None:
    """Why KUBEBUILDER_ASSETS is not used; empty when it is not set."""
    if not env.get(ASSETS):
        return ""
    folder = Path(env[ASSETS])
    missing = [
        program.name
        for program in versions.programs(kubernetes)
        if not os.access(folder / program.name, os.X_OK)
    ]
    if missing:
        return f"{ASSETS}={folder} is not used: it lacks {', '.join(missing)}."
    version = _version(folder / "kube-apiserver")
    if version != kubernetes:
        return (
            f"{ASSETS}={folder} is not used: its kube-apiserver is "
            f"{version or 'of no known version'} and {kubernetes} is wanted; "
            "choose a version with --kubernetes."
        )
    return None


def _version(apiserver: Path) -> str:
    try:
        done = subprocess.run(
            [apiserver, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().removeprefix("Kubernetes v")


def _at(folder: Path, kubernetes: str, env: Mapping[str, str]) -> Binaries:
    on_path = shutil.which("kubectl", path=env.get("PATH"))
    return Binaries(folder, kubernetes, Path(on_path) if on_path else folder / "kubectl")
