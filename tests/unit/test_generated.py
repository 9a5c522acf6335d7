import pytest

from kubenexus import generate
from tests.pages import ROOT

FILES = generate.files(ROOT)


@pytest.mark.parametrize("name", sorted(FILES))
def test_generated_files_match_the_code(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name], "run `make generate`"
