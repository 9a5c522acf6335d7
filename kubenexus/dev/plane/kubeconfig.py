"""Render a kubeconfig: the API server and the credentials of one user."""

import base64
import json

from kubenexus.pki import KeyPair


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def render(*, server: str, ca: bytes, user: str, credentials: KeyPair, namespace: str) -> str:
    """JSON, which is YAML: every client reads it. Nothing in it refers to another file."""
    name = "kubenexus-dev"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _text(ca)}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _text(credentials.certificate),
                    "client-key-data": _text(credentials.key),
                },
            }
        ],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}
        ],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"
