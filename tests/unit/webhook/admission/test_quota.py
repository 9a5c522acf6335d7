"""What could never run within its tenant's quota is refused, and said as the documentation says."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies import vocabulary
from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from tests.builders import a_job, a_namespace, a_pod, in_gang
from tests.pages import ROOT
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review.codec import Review

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
HOME = a_namespace("team-a", tenant="research", tier="gold")
GPU: Json = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
POLICY = f"""
apiVersion: {vocabulary.POLICY_API_VERSION}
kind: TenantPolicy
metadata: {{name: research}}
spec:
  tenant: {{name: research, tier: gold}}
  quota: {{max: {{nvidia.com/gpu: 4}}}}
"""


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    file = tmp_path_factory.mktemp("policies") / "research.yaml"
    file.write_text(POLICY)
    paths = [*sorted(loader.LIBRARY.glob("*.yaml")), file]
    return loader.load_files(paths, compiler=Compiler(engines.engine())).policies


def a_gang(members: int, **spec: Any) -> Json:
    pod = a_pod("p", labels=in_gang("train", members), containers=[GPU])
    return a_job("train", pod=pod, parallelism=members, completions=members, **spec)


def review(obj: Json, old: Json | None = None) -> Review:
    return Review(
        uid="u",
        operation="CREATE" if old is None else "UPDATE",
        kind="Job",
        group="batch",
        version="v1",
        resource="jobs",
        namespace="team-a",
        name="train",
        object=obj,
        old_object=old,
    )


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [
        pytest.param(a_gang(4), None, False, id="as many as are allowed"),
        pytest.param(a_gang(8), None, True, id="more than are ever allowed"),
        pytest.param(a_gang(8), a_gang(4), True, id="changed to more"),
        pytest.param(a_gang(8, suspend=True), a_gang(8), False, id="it was too much before"),
    ],
)
def test_an_object(policies: PolicySet, new: Json, old: Json | None, refused: bool) -> None:
    found = decide.validate(review(new, old), Facts(HOME), policies, now=NOW)
    lines = [line.line() for line in found.failures if line.rule == "quota"]
    assert (len(lines), not found.allowed) == (int(refused), refused), found.message
    for line in lines:
        assert line.replace("spec.template.spec", "spec") in PAGE
