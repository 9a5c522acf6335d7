"""
Folders on this machine: the cache of programs and the state of running planes.

Both follow the XDG base directories; the environment is passed in.
"""

from collections.abc import Mapping
from pathlib import Path


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    # The XDG specification ignores relative values.
    value = Path(env.get(variable, ""))
    return value if value.is_absolute() else _home(env) / default


def cache(env: Mapping[str, str]) -> Path:
    return _base(env, "XDG_CACHE_HOME", ".cache") / "kubenexus"


def programs(env: Mapping[str, str], kubernetes: str) -> Path:
    return cache(env) / "bin" / kubernetes


def state(env: Mapping[str, str], name: str) -> Path:
    return _base(env, "XDG_STATE_HOME", ".local/state") / "kubenexus" / "dev" / name
