"""
Write the generated files: `make generate`.

    docs/schemas/*.json      JSON Schemas of policies and reservations, for editors
    docs/reference/*.md      reference pages: keys, documents, commands, metrics, Events
    deploy/crds/*.yaml       CustomResourceDefinitions
    charts/kubenexus/**      what `kubenexus.install.chart` generates

A test compares the tree with `files()`. Files of the chart are left out where there is no chart,
as in an installed wheel.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from kubenexus import reference
from kubenexus.install import chart
from policies.documents import crds, json_schemas

_NOTE = "# Made from policies/documents/policy.py by `make generate`.\n"


def files(root: Path = Path()) -> Mapping[str, str]:
    """Path below the repository -> text."""
    made = {
        f"docs/schemas/{kind}.json": json.dumps(schema, indent=2) + "\n"
        for kind, schema in json_schemas.documents().items()
    }
    for definition in crds.definitions():
        plural = definition["spec"]["names"]["plural"]
        text = yaml.safe_dump(definition, sort_keys=False, width=120, allow_unicode=True)
        made[f"deploy/crds/{plural}.yaml"] = _NOTE + text
    values = root / chart.CHART / "values.yaml"
    if not values.exists():
        return {**made, **reference.pages()}
    charted = chart.files(root / chart.CHART)
    made |= {f"{chart.CHART}/{name}": text for name, text in charted.items()}
    return {**made, **reference.pages(values=values.read_text())}


if __name__ == "__main__":
    for name, text in files().items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
