"""
How KubeNexus starts itself as another process.

`-P` keeps the current folder off the import path: a person's own `scheduler.py` must not stand in
for ours. The folder that this package was imported from is named instead, so that it works from a
source tree too.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COMMAND: Final = (sys.executable, "-P", "-m", "kubenexus")
_ROOT: Final = Path(__file__).parents[3]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    known = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{_ROOT}{os.pathsep}{known}" if known else str(_ROOT)}
