"""
The programs of a control plane, and tools that some tests need, each in one pinned version.

A version is known when its `go.mod` and `go.sum` lie under `modules/<tool>/<version>/`: these two
files fix every source that goes into a binary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubenexus.dev.errors import UsageError

MODULES: Final = Path(__file__).parents[1] / "modules"
DEFAULT_KUBERNETES: Final = "1.37.1"
KNOWN_KUBERNETES: Final = ("1.37.1", "1.36.4")
ETCD: Final = "3.7.3"
KWOK: Final = "0.8.0"
HELM: Final = "4.3.1"
# The previous major version, still in wide use.
HELM_3: Final = "3.22.0"
# The last version whose commands are in its main module.
CERT_MANAGER: Final = "1.11.5"


@dataclass(frozen=True, slots=True)
class Program:
    """One binary: what it is called, and the Go package it is built from."""

    name: str
    package: str
    module: str
    version: str
    folder: Path
    """Holds the `go.mod` and `go.sum` that the binary is built with."""
    stamp: tuple[str, ...] = ()
    """`-X` linker settings, so that the program knows its version."""


def _kubernetes(version: str) -> tuple[Program, ...]:
    major, minor, _ = version.split(".")
    base = "k8s.io/component-base/version"
    stamp = (
        f"{base}.gitVersion=v{version}",
        f"{base}.gitMajor={major}",
        f"{base}.gitMinor={minor}",
    )
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    module = "k8s.io/kubernetes"
    folder = MODULES / "kubernetes" / version
    return tuple(
        Program(name, f"{module}/cmd/{name}", module, version, folder, stamp) for name in names
    )


def programs(kubernetes: str) -> tuple[Program, ...]:
    """The programs of a control plane of this version, the quickest to build first."""
    if kubernetes.removeprefix("v") not in KNOWN_KUBERNETES:
        raise UsageError(
            f"Kubernetes {kubernetes} is not known here; known are {', '.join(KNOWN_KUBERNETES)}."
        )
    etcd, kwok = "go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok"
    return (
        Program("etcd", etcd, etcd, ETCD, MODULES / "etcd" / ETCD),
        Program("kwok", f"{kwok}/cmd/kwok", kwok, KWOK, MODULES / "kwok" / KWOK),
        *_kubernetes(kubernetes.removeprefix("v")),
    )


def _helm() -> tuple[Program, ...]:
    module = "helm.sh/helm/v4"
    stamp = (f"{module}/internal/version.version=v{HELM}",)
    folder = MODULES / "helm" / HELM
    return (Program("helm", f"{module}/cmd/helm", module, HELM, folder, stamp),)


def _helm_3() -> tuple[Program, ...]:
    """Without a cluster it renders for the Kubernetes version of its own libraries."""
    module, minor = "helm.sh/helm/v3", DEFAULT_KUBERNETES.split(".")[1]
    stamp = (
        f"{module}/internal/version.version=v{HELM_3}",
        f"{module}/pkg/chartutil.k8sVersionMinor={minor}",
        f"{module}/pkg/lint/rules.k8sVersionMinor={minor}",
    )
    folder = MODULES / "helm" / HELM_3
    return (Program("helm", f"{module}/cmd/helm", module, HELM_3, folder, stamp),)


def _cert_manager() -> tuple[Program, ...]:
    module, folder = "github.com/cert-manager/cert-manager", MODULES / "cert-manager" / CERT_MANAGER
    return tuple(
        Program(name, f"{module}/cmd/{name}", module, CERT_MANAGER, folder)
        for name in ("controller", "cainjector")
    )


def tools() -> Mapping[str, tuple[Program, ...]]:
    """Name -> programs of a tool that is built on request."""
    return {"helm": _helm(), "helm-3": _helm_3(), "cert-manager": _cert_manager()}


def tool(name: str) -> tuple[Program, ...]:
    programs = tools().get(name)
    if programs is None:
        raise UsageError(f"{name!r} is not known here; known are {', '.join(sorted(tools()))}.")
    return programs
