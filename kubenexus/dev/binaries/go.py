"""
Two calls of Go: which packages are still to be compiled, and compile and link one program.

A failure of Go becomes one message: what failed, why, and what to do.
"""

import collections
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubenexus.dev.binaries.toolchain import Toolchain, environment
from kubenexus.dev.binaries.versions import Program
from kubenexus.dev.errors import BinariesUnavailable
from kubenexus.dev.process import die_with_parent
from kubenexus.dev.process.child import TAIL_LINES

# Messages of Go and of proxies about a source that cannot be fetched.
_FETCH: Final = re.compile(
    r"dial tcp|i/o timeout|no such host|connection refused|connection reset|proxyconnect"
    r"|TLS handshake|x509:|Forbidden|Not Found|Bad Gateway|Service Unavailable|\b410 Gone"
    r"|unrecognized import path|module lookup disabled|SECURITY ERROR|unexpected EOF"
)
_DOWNLOADING: Final = re.compile(r"^go: downloading (\S+) (\S+)")


def settings(program: Program) -> tuple[str, ...]:
    """The build arguments that, with the sources, determine the binary."""
    linker = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in program.stamp)])
    return ("-trimpath", "-buildvcs=false", f"-ldflags={linker}")


def stale(
    program: Program, go: Toolchain, *, env: Mapping[str, str], note: Callable[[str], None]
) -> frozenset[str]:
    """The packages that a build would compile. Fetches the sources that are missing."""
    form = "{{if .Stale}}{{.ImportPath}}{{end}}"
    noted = False

    def heard(line: str) -> None:
        nonlocal noted
        if _DOWNLOADING.match(line) and not noted:
            noted = True
            note(f"{program.name}: fetching sources of {program.module} {program.version}.")

    command = [go.go, "list", "-deps", *settings(program), "-f", form, program.package]
    output = _run(program, command, env=env, heard=heard)
    return frozenset(output.split())


def build(
    program: Program,
    go: Toolchain,
    target: Path,
    *,
    env: Mapping[str, str],
    compiled: Callable[[str], None],
) -> None:
    command = [go.go, "build", "-v", *settings(program), "-o", str(target), program.package]
    _run(program, command, env=env, heard=compiled)


def _run(
    program: Program,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    heard: Callable[[str], None],
) -> str:
    """Run Go in the program's module; `heard` gets every progress line."""
    last: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command],
        cwd=program.folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        output: list[str] = []
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line.rstrip())
                (heard if _is_talk(command, line) else output.append)(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BinariesUnavailable(explain(program, process.returncode, "\n".join(last), env=env))
    return "\n".join(output)


def _is_talk(command: Sequence[str], line: str) -> bool:
    return command[1] == "build" or line.startswith("go: ")


def explain(program: Program, code: int, output: str, *, env: Mapping[str, str]) -> str:
    """One message: what failed, why as far as Go's output shows, and what to do."""
    title = f"{program.name} {program.version}"
    # A proxy's address may hold a password.
    proxy = re.sub(r"//[^/@,|]*@", "//", env.get("GOPROXY", "")) or "Go's default proxy"
    if _FETCH.search(output):
        why = f"The sources of {title} ({program.module}) could not be fetched from {proxy}."
        what_to_do = "Set GOPROXY to a module proxy that this machine reaches, "
    elif "no space left on device" in output:
        why = f"{title} could not be built: the disk is full."
        what_to_do = "Free disk space (the build takes about 6 GB), "
    elif "signal: killed" in output or code < 0:
        why = f"The build of {title} was killed, maybe for lack of memory."
        what_to_do = "Run `kubenexus dev build` again, with GOMAXPROCS=1 where memory is short, "
    else:
        why = f"{title} could not be built."
        what_to_do = "Run `kubenexus dev build` again, "
    return (
        f"{why}\n"
        f"{what_to_do}or point KUBEBUILDER_ASSETS at a folder with the programs, "
        "or run `kubenexus dev build` where the network is and copy its cache here.\n"
        f"The end of Go's output:\n{output}"
    )
