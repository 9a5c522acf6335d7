"""
The chart as plain manifests, for installations without Helm:
`python -m kubenexus.install.render_manifests HELM`.

    deploy/kubenexus.yaml                 everything, with deploy/values.yaml
    deploy/numa-labeler-daemonset.yaml    the labeler alone

Both begin with the namespace. A test compares the files with what this renders.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from policies import vocabulary

RELEASE: Final = "kubenexus"
_NOTE: Final = (
    "# Rendered from charts/kubenexus by `make manifests`; changes here are overwritten.\n"
)
_COMPONENT: Final = "app.kubernetes.io/component"


def render(helm: str, root: Path) -> Mapping[str, str]:
    """Path below the repository -> text."""
    command = [helm, "template", RELEASE, str(root / "charts/kubenexus")]
    command += ["--namespace", vocabulary.SYSTEM_NAMESPACE]
    command += ["--values", str(root / "deploy/values.yaml")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    objects = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    labeler = [obj for obj in objects if _labels(obj).get(_COMPONENT) == "labeler"]
    return {
        "deploy/kubenexus.yaml": _text(objects),
        "deploy/numa-labeler-daemonset.yaml": _text(labeler),
    }


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _text(objects: list[dict[str, Any]]) -> str:
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": vocabulary.SYSTEM_NAMESPACE},
    }
    # `managed-by: Helm` would be untrue.
    for obj in objects:
        obj["metadata"].get("labels", {}).pop("app.kubernetes.io/managed-by", None)
    text: str = yaml.safe_dump_all(
        [space, *objects], sort_keys=False, width=120, allow_unicode=True
    )
    return _NOTE + text


if __name__ == "__main__":
    for name, text in render(sys.argv[1], Path()).items():
        Path(name).write_text(text)
        print(name)
