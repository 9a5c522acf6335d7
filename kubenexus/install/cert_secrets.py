"""
The webhook's certificate in two secrets of the release's namespace, kept by `renewal`'s rules.

    <name>      tls.crt, tls.key, ca.crt    what the webhook serves with, and what clients trust
    <name>-ca   tls.crt, tls.key            the authority; read by nobody but this

The authority is written first: a leaf without its authority would have to be made anew.
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
    """A secret of this name holds something else; the message says what to do."""


async def sync(
    client: Client, *, namespace: str, name: str, names: Sequence[str], now: datetime
) -> bool:
    """Make or renew what is due; whether anything was written."""
    leaf = await _get(client, namespace, name)
    authority = await _get(client, namespace, f"{name}-ca")
    kept = read(leaf, authority)
    wanted = cert_rotation.rotate(kept, names=names, now=now)
    if wanted == kept:
        return False
    if kept is None or kept.authority != wanted.authority:
        await _put(client, namespace, f"{name}-ca", authority, wanted.authority)
    await _put(client, namespace, name, leaf, wanted.leaf, **{"ca.crt": wanted.bundle})
    return True


def read(leaf: Json | None, authority: Json | None) -> StoredCertificates | None:
    """What the secrets hold; None where one of them is not there."""
    if leaf is None or authority is None:
        return None
    try:
        kept = StoredCertificates(_pair(authority), _bytes(leaf, "ca.crt"), _pair(leaf))
        cert_rotation.check(kept)
    except (KeyError, ValueError, binascii.Error) as exc:
        name = (leaf.get("metadata") or {}).get("name", "")
        raise Unreadable(
            f"the secrets {name} and {name}-ca hold no certificates of this program ({exc}); "
            "delete both, or name a secret of another name"
        ) from exc
    return kept


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
    found: Json | None,
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
    if found is None:
        await client.create(SECRETS, secret)
        return
    # With its resourceVersion: who wrote in between is not overwritten.
    about["resourceVersion"] = found["metadata"]["resourceVersion"]
    await client.update(SECRETS, secret)
