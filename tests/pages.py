"""The README and the pages of the documentation, and the fenced blocks in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)

# Documents of the product that no API server stores; their own tests read them.
NOT_STORED = frozenset({"PolicyTest", "Cluster"})


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `info` says what it is: yaml, sh, console, text."""

    page: str
    line: int
    info: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    def documents(self) -> list[dict[str, Any]]:
        return [item for item in yaml.safe_load_all(self.text) if item]


def pages() -> list[Path]:
    return [README, *sorted(DOCS.rglob("*.md"))]


def blocks(*infos: str) -> list[Block]:
    """The blocks of these kinds, of all pages; of every kind where none is named."""
    found = (block for page in pages() for block in _blocks(page))
    return [block for block in found if not infos or block.info in infos]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, match[2].strip(), match[3])
