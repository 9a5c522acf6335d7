"""
The keys, certificates and kubeconfigs of one control plane, written to its folder.

There are two CAs: etcd has its own, so that no user of the API server is a user of etcd.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from kubenexus import pki, rbac
from kubenexus.dev.plane import kubeconfig
from kubenexus.dev.plane.flags import Layout
from kubenexus.dev.process.ports import HOST
from kubenexus.pki import KeyPair

VALID_FOR: Final = timedelta(days=365)
NAMES: Final = (HOST, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def write_private(path: Path, data: bytes) -> None:
    """Write with mode 0600, for any umask."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _write(at: Layout, name: str, pair: KeyPair) -> None:
    write_private(at.certificate(name), pair.certificate)
    write_private(at.key(name), pair.key)


def serving(ca: KeyPair, name: str, *, now: datetime) -> KeyPair:
    return pki.server(ca, common_name=name, names=NAMES, now=now, valid_for=VALID_FOR)


def make(at: Layout, *, server: str, now: datetime) -> KeyPair:
    """Create and write everything; returns the CA of the API server."""
    ca = pki.authority("kubenexus-dev", now=now, valid_for=VALID_FOR)
    etcd_ca = pki.authority("kubenexus-dev-etcd", now=now, valid_for=VALID_FOR)
    etcd_client = pki.client(etcd_ca, user="kube-apiserver", now=now, valid_for=VALID_FOR)
    _write(at, "ca", ca)
    _write(at, "etcd-ca", etcd_ca)
    _write(at, "etcd", serving(etcd_ca, "etcd", now=now))
    _write(at, "etcd-client", etcd_client)
    _write(at, "apiserver", serving(ca, "kube-apiserver", now=now))
    tokens = pki.signing_pair()
    write_private(at.key("service-accounts"), tokens.private)
    write_private(at.certificate("service-accounts"), tokens.public)
    for user in rbac.USERS:
        pair = pki.client(ca, user=user.name, groups=user.groups, now=now, valid_for=VALID_FOR)
        _write(at, user.name, pair)
        text = kubeconfig.render(
            server=server,
            ca=ca.certificate,
            user=user.name,
            credentials=pair,
            namespace=rbac.TENANT_NAMESPACE if user.name == rbac.TENANT else "default",
        )
        write_private(at.kubeconfig(user.name), text.encode())
    return ca
