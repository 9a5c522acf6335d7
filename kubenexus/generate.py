"""
Writes the files that are made from code, so that they cannot say something else: `make generate`.

    docs/schemas/*.json    JSON Schemas of the policy documents, for editors
    deploy/crds/*.yaml     CustomResourceDefinitions

A test compares the tree with `files()`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from policies import crds, schemas

_NOTE = "# Made from policies/model.py by `make generate`.\n"


def files() -> Mapping[str, str]:
    """Path below the repository -> text."""
    made = {
        f"docs/schemas/{kind}.json": json.dumps(schema, indent=2) + "\n"
        for kind, schema in schemas.schemas().items()
    }
    for definition in crds.definitions():
        plural = definition["spec"]["names"]["plural"]
        text = yaml.safe_dump(definition, sort_keys=False, width=120, allow_unicode=True)
        made[f"deploy/crds/{plural}.yaml"] = _NOTE + text
    return made


if __name__ == "__main__":
    for name, text in files().items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
