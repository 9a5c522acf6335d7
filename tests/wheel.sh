#!/usr/bin/env bash
# Proves the artefact, not the tree: builds the wheel, installs it into an empty environment beside its
# locked requirements, and runs the unit tests there against what was installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=$PWD
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT

"$tree/.venv/bin/python" -m build --quiet --no-isolation --wheel --outdir "$elsewhere/dist" .
"$tree/.venv/bin/python" -m venv "$elsewhere/venv"
"$elsewhere/venv/bin/python" -m pip install --quiet --require-hashes -r requirements/dev.txt
"$elsewhere/venv/bin/python" -m pip install --quiet --no-deps "$elsewhere"/dist/*.whl
cp -r tests examples docs deploy charts requirements pyproject.toml Makefile README.md CHANGELOG.md "$elsewhere/"
cd "$elsewhere"
"$elsewhere/venv/bin/python" -m pytest -q -n 2 -p no:cacheprovider tests/unit
