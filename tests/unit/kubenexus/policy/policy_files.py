"""Policy files for tests: only what a situation is about has to be written."""

import textwrap
from pathlib import Path
from typing import Any

import yaml

from policies import vocabulary
from policies.cel import engines
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet

Json = dict[str, Any]
COMPILER = Compiler(engines.engine())


def a_policy(name: str = "rules", **spec: Any) -> Json:
    """A PlatformPolicy; or a TenantPolicy where `tenant` is given."""
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "TenantPolicy" if "tenant" in spec else "PlatformPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_test(*cases: Json, name: str = "cases", **spec: Any) -> Json:
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PolicyTest",
        "metadata": {"name": name},
        "spec": {"cases": list(cases), **spec},
    }


def a_rule(name: str, expression: str, **more: Any) -> Json:
    return {"name": name, "expression": expression, **more}


def written(folder: Path, **files: Json | list[Json] | str) -> Path:
    """Files of YAML in a folder; a name's `__` is a slash."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(textwrap.dedent(content))
        else:
            parts = content if isinstance(content, list) else [content]
            path.write_text(yaml.safe_dump_all(parts, sort_keys=False))
    return folder


def compiled(*policies: Json, compiler: Compiler = COMPILER) -> PolicySet:
    from policies.engine import loader

    loaded = loader.compile_all(loader.read_objects(policies), compiler=compiler)
    assert loaded.problems == ()
    return loaded.policies
