"""The containers that classes of the product create, read from their source."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.pages import ROOT

PACKAGES = ("scheduler", "webhook", "cluster", "policies")
_KINDS = {"dict", "list", "set", "deque", "Counter", "defaultdict", "OrderedDict"}
_DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


@cache
def found() -> dict[str, frozenset[str]]:
    """`module.Class` -> its attributes that `__init__` or a field sets to a new container."""
    classes: dict[str, frozenset[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and (own := frozenset(_attributes(node))):
                    classes[f"{module}.{node.name}"] = own
    return classes


def endless_caches() -> list[str]:
    """Functions whose cache has no limit and that take arguments."""
    endless = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.args.args:
                    names = {ast.unparse(each) for each in node.decorator_list}
                    if names & {"cache", "functools.cache", "lru_cache(maxsize=None)"}:
                        endless.append(f"{path.relative_to(ROOT)}:{node.name}")
    return endless


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and _is_container(statement.value):
            yield ast.unparse(statement.target)
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            for inner in ast.walk(statement):
                if isinstance(inner, (ast.Assign, ast.AnnAssign)) and _is_container(inner.value):
                    targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                    yield from (
                        target.attr
                        for target in targets
                        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
                    )


def _is_container(value: ast.expr | None) -> bool:
    if isinstance(value, _DISPLAYS):
        return True
    if not isinstance(value, ast.Call):
        return False
    if _called(value.func) == "field":
        return any(
            keyword.arg == "default_factory" and _called(keyword.value) in _KINDS
            for keyword in value.keywords
        )
    return _called(value.func) in _KINDS


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
