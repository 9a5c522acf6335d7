from pathlib import Path

import pytest

from kubenexus import generate

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(generate.files()))
def test_generated_files_say_what_the_code_says(name: str) -> None:
    assert (ROOT / name).read_text() == generate.files()[name], "run `make generate`"
