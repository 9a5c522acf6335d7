"""Building with a fake `go`, so that a test can cause every failure."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from kubenexus.dev.binaries import build, cache_manifest
from kubenexus.dev.binaries.progress import BuildProgress
from kubenexus.dev.binaries.versions import Program
from kubenexus.dev.errors import BinariesUnavailable
from tests.pages import ROOT

# Writes every run to $RUNS. `$STOP` names the program whose build says so on the fifo $HELLO, with
# half of its output written, and then waits for the fifo $GO_ON. `$FAIL` is said before failing.
FAKE_GO = """\
#!/bin/sh
case "$1" in
  version) echo "go version go1.99.0 linux/amd64"; exit 0 ;;
  list) echo "a/x"; echo "a/y"; exit 0 ;;
esac
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then target="$2"; fi
  shift
done
echo "$1" >> "$RUNS"
if [ -n "$FAIL" ]; then echo "$FAIL" >&2; exit 1; fi
echo "a/x" >&2
printf 'half' > "$target"
if [ "$1" = "$STOP" ]; then echo here > "$HELLO"; read line < "$GO_ON"; fi
echo "a/y" >&2
printf '#!/bin/sh\\necho %s\\n' "$1" > "$target"
"""


class Heard:
    """Keeps what a build says; `waiting` is set once it says that it waits for another."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.standings: list[BuildProgress] = []
        self.waiting = threading.Event()

    def note(self, line: str) -> None:
        self.notes.append(line)
        if "waiting" in line:
            self.waiting.set()

    def standing(self, standing: BuildProgress) -> None:
        self.standings.append(standing)


class Workshop:
    """A folder to build into, a pretended Go, and two programs to build."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "bin"
        tools = root / "tools"
        tools.mkdir()
        go = tools / "go"
        go.write_text(FAKE_GO)
        go.chmod(0o755)
        (root / "go.mod").write_text("module m\n\ngo 1.26.0\n")
        (root / "go.sum").write_text("")
        for fifo in ("hello", "go-on"):
            os.mkfifo(root / fifo)
        self.env = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "RUNS": str(root / "runs"),
            "HELLO": str(root / "hello"),
            "GO_ON": str(root / "go-on"),
        }
        self.programs = [Program(name, f"m/{name}", "m", "1.0.0", root) for name in ("one", "two")]

    def ensure(self, heard: Heard | None = None, **env: str) -> list[str]:
        return build.ensure(
            self.programs,
            self.folder,
            cache=self.root / "cache",
            env={**self.env, **env},
            show=heard or Heard(),
        )

    def runs(self) -> list[str]:
        return (self.root / "runs").read_text().split()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != build.LOCK)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


WHOLE = [cache_manifest.FILE, "one", "two"]


def test_everything_is_built_once_and_found_afterwards(workshop: Workshop) -> None:
    outcomes = [workshop.ensure(), workshop.ensure()]
    mode = stat.S_IMODE((workshop.folder / "one").stat().st_mode)
    assert (outcomes, workshop.runs(), workshop.files(), mode) == (
        [["one", "two"], []],
        ["m/one", "m/two"],
        WHOLE,
        0o755,
    )


def _truncate(folder: Path) -> None:
    (folder / "one").write_bytes((folder / "one").read_bytes()[:3])


def _flip(folder: Path) -> None:
    (folder / "one").write_bytes((folder / "one").read_bytes()[::-1])


def _forbid(folder: Path) -> None:
    (folder / "one").chmod(0o644)


def _take_away(folder: Path) -> None:
    (folder / "one").unlink()


def _forget(folder: Path) -> None:
    (folder / cache_manifest.FILE).write_text("{")


def _other_sources(folder: Path) -> None:
    (folder.parent / "go.sum").write_text("something else\n")


@pytest.mark.parametrize(
    ("harm", "rebuilt", "note"),
    [
        pytest.param(_truncate, ["one"], "is damaged: it has 3 bytes", id="a truncated program"),
        pytest.param(_flip, ["one"], "its content is not what was built", id="a changed program"),
        pytest.param(_forbid, ["one"], "may not be executed", id="a program without its x bit"),
        pytest.param(_take_away, ["one"], "", id="a missing program"),
        pytest.param(_forget, ["one", "two"], "its origin is unknown", id="no manifest"),
        pytest.param(_other_sources, ["one", "two"], "from other sources", id="other sources"),
    ],
)
def test_a_missing_or_damaged_program_is_built_again(
    workshop: Workshop, harm: "object", rebuilt: list[str], note: str
) -> None:
    workshop.ensure()
    assert callable(harm)
    harm(workshop.folder)
    heard = Heard()
    outcome = workshop.ensure(heard)
    reported = any(note in line for line in heard.notes)
    assert (outcome, reported, workshop.ensure()) == (rebuilt, True, [])


def test_two_builders_do_the_work_once(workshop: Workshop) -> None:
    outcomes: dict[str, list[str]] = {}
    second = Heard()

    def run(name: str, heard: Heard) -> None:
        outcomes[name] = workshop.ensure(heard, STOP="m/one")

    threads = [
        threading.Thread(target=run, args=("first", Heard())),
        threading.Thread(target=run, args=("second", second)),
    ]
    threads[0].start()
    (workshop.root / "hello").read_text()
    threads[1].start()
    assert second.waiting.wait(30)
    (workshop.root / "go-on").write_text("go on\n")
    for thread in threads:
        thread.join(30)
    named = any(f"(process {os.getpid()})" in line for line in second.notes)
    assert (outcomes, workshop.runs(), named) == (
        {"first": ["one", "two"], "second": []},
        ["m/one", "m/two"],
        True,
    )


def test_a_build_that_was_killed_leaves_nothing_half_done_and_is_continued(
    workshop: Workshop,
) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.unit.kubenexus.dev.binaries.test_build import Workshop, Heard
        from kubenexus.dev.binaries import build
        from kubenexus.dev.binaries.versions import Program
        import os
        root = Path(sys.argv[1])
        programs = [Program(name, f"m/{name}", "m", "1.0.0", root) for name in ("one", "two")]
        build.ensure(programs, root / "bin", cache=root / "cache", env=os.environ, show=Heard())
        """
    )
    repository = ROOT
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(workshop.root)],
        env={**os.environ, **workshop.env, "STOP": "m/two", "PYTHONPATH": str(repository)},
    )
    (workshop.root / "hello").read_text()
    process.send_signal(signal.SIGKILL)
    process.wait()
    after_kill = [name for name in workshop.files() if not name.startswith(".")]
    outcome = workshop.ensure()
    assert (after_kill, outcome, workshop.files()) == (
        [cache_manifest.FILE, "one"],
        ["two"],
        WHOLE,
    )


@pytest.mark.parametrize(
    ("reported", "why", "way_out"),
    [
        pytest.param(
            'Get "https://proxy/x": dial tcp: lookup proxy: no such host',
            "The sources of one 1.0.0 (m) could not be fetched from Go's default proxy.",
            "Set GOPROXY",
            id="the proxy is out of reach",
        ),
        pytest.param(
            "m@v1.0.0: reading https://proxy/m: 403 Forbidden",
            "The sources of one 1.0.0 (m) could not be fetched from Go's default proxy.",
            "KUBEBUILDER_ASSETS",
            id="the proxy refuses the module",
        ),
        pytest.param(
            "write /x: no space left on device",
            "one 1.0.0 could not be built: the disk is full.",
            "Free disk space",
            id="the disk is full",
        ),
        pytest.param(
            "compile: signal: killed",
            "The build of one 1.0.0 was killed, maybe for lack of memory.",
            "GOMAXPROCS=1",
            id="the compiler was killed",
        ),
        pytest.param(
            "x.go:1: syntax error",
            "one 1.0.0 could not be built.",
            "`kubenexus dev build`",
            id="anything else",
        ),
    ],
)
def test_the_message_of_a_failed_build_says_what_to_do(
    workshop: Workshop, reported: str, why: str, way_out: str
) -> None:
    with pytest.raises(BinariesUnavailable) as caught:
        workshop.ensure(FAIL=reported)
    message = str(caught.value)
    first, *_, last = message.splitlines()
    assert (first, way_out in message, last, workshop.files()) == (
        why,
        True,
        reported,
        [],
    )


def test_a_password_in_the_address_of_a_proxy_is_not_repeated(workshop: Workshop) -> None:
    proxies = "https://ann:secret@one.example,https://two.example"
    with pytest.raises(BinariesUnavailable) as caught:
        workshop.ensure(FAIL="no such host", GOPROXY=proxies)
    first = str(caught.value).splitlines()[0]
    assert first.endswith("fetched from https://one.example,https://two.example.")


def test_progress_counts_shared_packages_once(workshop: Workshop) -> None:
    heard = Heard()
    workshop.ensure(heard)
    counts = [(each.program, each.done, each.total, each.linked) for each in heard.standings]
    assert counts == [
        ("one", 0, 2, 0),
        ("one", 1, 2, 0),
        ("one", 2, 2, 0),
        ("two", 2, 2, 1),
        ("two", 2, 2, 1),
        ("two", 2, 2, 1),
    ]
