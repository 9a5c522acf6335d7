"""
The command lines of the control plane, from its folder and its ports.

Pure: paths and ports in, arguments out. Everything listens on 127.0.0.1.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubenexus.dev.process.ports import HOST

SERVICE_RANGE: Final = "10.96.0.0/16"
POD_RANGE: Final = "10.64.0.1/10"
ISSUER: Final = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    kwok: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one control plane."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "etcd"

    @property
    def stages(self) -> Path:
        return self.root / "stages.yaml"

    def log(self, component: str) -> Path:
        return self.root / "logs" / f"{component}.log"

    def certificate(self, name: str) -> Path:
        return self.root / "certificates" / f"{_file_name(name)}.crt"

    def key(self, name: str) -> Path:
        return self.root / "certificates" / f"{_file_name(name)}.key"

    def kubeconfig(self, user: str) -> Path:
        return self.root / "kubeconfig" / f"{_file_name(user)}.yaml"


def _file_name(name: str) -> str:
    return name.replace(":", "-")


def etcd(at: Layout, ports: Ports, *, unsafe_no_fsync: bool) -> list[str]:
    client, peer = f"https://{HOST}:{ports.etcd}", f"https://{HOST}:{ports.etcd_peer}"
    return [
        f"--data-dir={at.data}",
        "--name=dev",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=dev={peer}",
        "--client-cert-auth",
        f"--trusted-ca-file={at.certificate('etcd-ca')}",
        f"--cert-file={at.certificate('etcd')}",
        f"--key-file={at.key('etcd')}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={at.certificate('etcd-ca')}",
        f"--peer-cert-file={at.certificate('etcd')}",
        f"--peer-key-file={at.key('etcd')}",
        "--log-level=warn",
        *(["--unsafe-no-fsync"] if unsafe_no_fsync else []),
    ]


def apiserver(at: Layout, ports: Ports) -> list[str]:
    return [
        f"--etcd-servers=https://{HOST}:{ports.etcd}",
        f"--etcd-cafile={at.certificate('etcd-ca')}",
        f"--etcd-certfile={at.certificate('etcd-client')}",
        f"--etcd-keyfile={at.key('etcd-client')}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.apiserver}",
        # The API server rejects a loopback address as endpoint of the `kubernetes` service.
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={at.certificate('apiserver')}",
        f"--tls-private-key-file={at.key('apiserver')}",
        f"--client-ca-file={at.certificate('ca')}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={at.certificate('service-accounts')}",
        f"--service-account-signing-key-file={at.key('service-accounts')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
    ]


def controller_manager(at: Layout, ports: Ports, *, user: str) -> list[str]:
    return [
        f"--kubeconfig={at.kubeconfig(user)}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.controller_manager}",
        f"--tls-cert-file={at.certificate('apiserver')}",
        f"--tls-private-key-file={at.key('apiserver')}",
        f"--service-account-private-key-file={at.key('service-accounts')}",
        f"--root-ca-file={at.certificate('ca')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--use-service-account-credentials=true",
        # The default of 20 calls per second delays new namespaces and nodes by seconds.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--leader-elect=false",
        "--profiling=false",
    ]


def kwok(at: Layout, ports: Ports, *, user: str) -> list[str]:
    return [
        f"--kubeconfig={at.kubeconfig(user)}",
        f"--config={at.stages}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        f"--server-address={HOST}:{ports.kwok}",
        f"--cidr={POD_RANGE}",
    ]


def scheduler(at: Layout, ports: Ports, *, user: str, config: Path | None) -> list[str]:
    return [
        # A configuration file brings its own connection and leader election settings.
        *(
            [f"--config={config}"]
            if config
            else [f"--kubeconfig={at.kubeconfig(user)}", "--leader-elect=false"]
        ),
        f"--bind-address={HOST}",
        f"--secure-port={ports.scheduler}",
        f"--tls-cert-file={at.certificate('apiserver')}",
        f"--tls-private-key-file={at.key('apiserver')}",
    ]
