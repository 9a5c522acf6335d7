"""
The parts of the chart that are generated from code.

    files/registration.yaml   webhooks, their rules and conditions     webhook.registration
    files/roles.yaml          what each component may do               kubenexus.rbac
    files/crds/*.yaml         CustomResourceDefinitions                policies.documents.crds
    values.schema.json        what values are accepted                 values.yaml
    README.md                 a table of the values                    values.yaml

`python -m kubenexus.install.chart` in the repository writes them; a test compares.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kubenexus import rbac
from kubenexus.install import values_schema
from policies.documents import crds
from webhook.registration import configurations

CHART: Final = Path("charts/kubenexus")
SCHEDULER: Final = "<scheduler>"
_NOTE: Final = "# Made from code by `make generate`; changes here are overwritten.\n"


def files(chart: Path = CHART) -> Mapping[str, str]:
    """Path below the chart -> text."""
    keys = values_schema.read((chart / "values.yaml").read_text())
    intro = (chart / "README.intro.md").read_text()
    return {
        "files/registration.yaml": _yaml(_registration()),
        "files/roles.yaml": _yaml(
            {
                "cluster": rbac.cluster_roles(),
                "ownNamespace": rbac.release_namespace_roles(),
                "triedNamespace": rbac.dry_run_namespace_roles(),
                "people": rbac.user_roles(),
            }
        ),
        **{
            f"files/crds/{crd['spec']['names']['plural']}.yaml": _yaml(crd)
            for crd in crds.definitions()
        },
        "values.schema.json": json.dumps(values_schema.schema(keys), indent=2) + "\n",
        "README.md": intro + values_schema.table(keys),
    }


def _registration() -> dict[str, Any]:
    """Name, rules and conditions of each webhook; the chart adds the rest."""
    mutating, validating = configurations.configurations(
        ca_pem=b"", base_url="", schedulers=(SCHEDULER,)
    )
    fields = ("name", "rules", "matchConditions", "sideEffects", "reinvocationPolicy")
    return {
        kind: [
            {
                "path": webhook["clientConfig"]["url"],
                **{key: webhook[key] for key in fields if key in webhook},
            }
            for webhook in configuration["webhooks"]
        ]
        for kind, configuration in (("mutating", mutating), ("validating", validating))
    }


class _Plain(yaml.SafeDumper):
    """Without anchors such as `*id001`."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: object) -> str:
    text: str = yaml.dump(document, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return _NOTE + text


if __name__ == "__main__":
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
