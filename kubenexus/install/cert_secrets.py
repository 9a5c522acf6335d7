"""
The webhook's certificate in two secrets of the release's namespace; `cert_rotation` decides.

    <name>      tls.crt, tls.key, ca.crt    the serving certificate, and the trust bundle
    <name>-ca   tls.crt, tls.key            the CA; only this module reads it

The CA is written first: a leaf without its CA would have to be issued again.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cluster import errors
from cluster.client import Client
from cluster.resources import SECRETS
from kubenexus.install import cert_rotation
from kubenexus.install.cert_rotation import StoredCertificates
from kubenexus.pki import KeyPair
from policies.json_fields import Json


class Unreadable(Exception):
    """A secret of this name has other contents; the message says what to do."""


async def sync(
    client: Client, *, namespace: str, name: str, names: Sequence[str], now: datetime
) -> bool:
    """Create or renew what is due; whether anything was written."""
    leaf = await _get(client, namespace, name)
    authority = await _get(client, namespace, f"{name}-ca")
    stored = read(leaf, authority)
    rotated = cert_rotation.rotate(stored, names=names, now=now)
    if rotated == stored:
        return False
    if stored is None or stored.authority != rotated.authority:
        await _put(client, namespace, f"{name}-ca", authority, rotated.authority)
    await _put(client, namespace, name, leaf, rotated.leaf, **{"ca.crt": rotated.bundle})
    return True


def read(leaf: Json | None, authority: Json | None) -> StoredCertificates | None:
    """The certificates of the secrets; None where a secret is missing."""
    if leaf is None or authority is None:
        return None
    try:
        stored = StoredCertificates(_pair(authority), _bytes(leaf, "ca.crt"), _pair(leaf))
        cert_rotation.check(stored)
    except (KeyError, ValueError, binascii.Error) as exc:
        name = (leaf.get("metadata") or {}).get("name", "")
        raise Unreadable(
            f"the secrets {name} and {name}-ca hold no certificates of this program ({exc}); "
            "delete both, or name a secret of another name"
        ) from exc
    return stored


def _pair(secret: Json) -> KeyPair:
    return KeyPair(_bytes(secret, "tls.crt"), _bytes(secret, "tls.key"))


def _bytes(secret: Json, key: str) -> bytes:
    return base64.b64decode((secret.get("data") or {})[key], validate=True)


async def _get(client: Client, namespace: str, name: str) -> Json | None:
    try:
        return await client.get(SECRETS, name, namespace=namespace)
    except errors.Gone:
        return None


async def _put(
    client: Client,
    namespace: str,
    name: str,
    existing: Json | None,
    pair: KeyPair,
    **more: bytes,
) -> None:
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, **more}
    about: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/name": "kubenexus", "app.kubernetes.io/component": "tls"},
    }
    secret: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": about,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    if existing is None:
        await client.create(SECRETS, secret)
        return
    # With the resourceVersion, so that a concurrent write is a conflict.
    about["resourceVersion"] = existing["metadata"]["resourceVersion"]
    await client.update(SECRETS, secret)
