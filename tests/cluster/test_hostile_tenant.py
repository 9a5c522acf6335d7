"""
A tenant with `edit` in one namespace sends what it likes; another tenant notices nothing.

The short form of `make hostile-tenant`: the first requests of one seed, on a control plane of its
own with the real webhook and two schedulers. It asserts what holds on a machine of any speed; the
long form asserts the times as well.
"""

from pathlib import Path
from typing import Final

import pytest

from kubenexus.dev.binaries.locate import Binaries
from tests.hostile import report, run

pytestmark = pytest.mark.cluster

OBJECTS: Final = 400


def test_no_process_ends_no_lease_is_lost_and_the_other_tenant_is_served(
    kubernetes_binaries: Binaries, tmp_path: Path
) -> None:
    result = run.run(kubernetes_binaries, tmp_path, objects=OBJECTS, seed=run.SEED)
    assert report.problems(result) == []
    assert result["attack"]["sent"] == OBJECTS
    # An attack that admission or the API server turns away as a whole would show nothing.
    assert result["attack"]["outcomes"]["stored"] > OBJECTS // 10
