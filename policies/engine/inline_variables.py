"""
Inlines variables into an expression, where that cannot change its meaning.

A variable is evaluated by itself, its value leaves the engine and enters it again, and the objects
are converted again for each reader. For small variables, such as a pod's labels, that costs many
times what evaluating them in place does. Not inlined are variables

    with loops                      inlined they would run as often as they are read
    of types that JSON lacks        a uint that leaves the engine comes back as an int
    near names that loops take      they would mean something else there

`inlined` gives None where a variable cannot be inlined: then the expression stays as it is. The
result is text, which the compiler reads like any other.
"""

import re
from collections.abc import Mapping
from typing import Final

from policies.cel.protocol import ADMISSION

LONGEST: Final = 20_000  # characters; beyond, compiling costs more than it saves

_NAMES: Final = "|".join(name for name, _ in ADMISSION.variables)
# Comments and strings first, so that what only looks like a variable is skipped.
_TOKEN: Final = re.compile(
    r"""//[^\n]*|'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\""""
    r"""|(?<![\w.])variables\s*\.\s*([A-Za-z_]\w*)""",
    re.S,
)
_RAW: Final = re.compile(r"""(?<!\w)[rRbB]{1,2}['"]""")
_LOOP: Final = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter|transform\w+)\s*\(")
_TAKEN: Final = re.compile(rf"[(,]\s*(?:{_NAMES})\s*,")
_ODD: Final = re.compile(
    r"uint|\d[uU]\b|bytes|timestamp|duration|optional|\?\s*\.|\.\s*\?|\[\s*\?|cel\s*\.|\btype\s*\("
)
_PLAIN: Final = re.compile(r"(?:bool|string|int|double|dyn|null_type|list|map|[<>, ])+")


def may_be_inlined(source: str, result_type: str) -> bool:
    """Whether a variable's expression means the same in every place."""
    odd = _ODD.search(source) or _LOOP.search(source) or _RAW.search(source)
    return odd is None and _PLAIN.fullmatch(result_type) is not None


def inlined(source: str, variables: Mapping[str, str]) -> str | None:
    """
    The expression with the expressions of the variables in their place.

    `variables` are those that may be inlined; none of them reads another one.
    """
    if _RAW.search(source) or _TAKEN.search(source):
        return None
    parts: list[str] = []
    end = 0
    for token in _TOKEN.finditer(source):
        name = token[1]
        if name is None:
            continue
        if name not in variables:
            return None
        parts += [source[end : token.start()], f"({variables[name]}\n)"]
        end = token.end()
    whole = "".join((*parts, source[end:]))
    return whole if len(whole) <= LONGEST else None
