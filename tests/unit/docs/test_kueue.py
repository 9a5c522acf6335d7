"""The page about Kueue says what admission says, word for word."""

import pytest

from policies.documents.rules import Selector
from policies.engine import kueue
from policies.engine.kueue import ClusterQueue, Queue
from tests.pages import ROOT

PAGE = " ".join((ROOT / "docs/integrations/kueue.md").read_text().split())
TIERS = ("gold", "silver", "bronze")


@pytest.mark.parametrize(
    "queue",
    [
        pytest.param(Queue("gpu", served=False), id="no Kueue"),
        pytest.param(Queue("gpu"), id="no LocalQueue"),
        pytest.param(Queue("gpu", "research"), id="no ClusterQueue"),
        pytest.param(Queue("gpu", "research", ClusterQueue("gold")), id="of other namespaces"),
        pytest.param(Queue("gpu", "research", ClusterQueue("platinum", Selector())), id="no tier"),
    ],
)
def test_a_warning_is_on_the_page(queue: Queue) -> None:
    said = kueue.tier_of(queue, namespace="team-a", labels={}, tiers=TIERS)
    assert said.problem
    assert said.problem in PAGE
