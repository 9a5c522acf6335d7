"""
`make bench-scheduler`: whole gangs and single pods, side by side with kube-scheduler in one run.

    stock, stock-packed                 kube-scheduler as shipped, and tuned to pack GPUs
    native, native-packed               with native gang scheduling
    native-rack, native-rack-packed     with native gang scheduling inside one rack
    ours                                `kubenexus scheduler` as shipped

One API server and etcd per case, equal objects, equal client limits, Events on, no leader election;
schedulers take turns in rotated order and each round runs all of them. `--quick` proves in a minute
or two that everything works. A long run can be made in pieces: `--run ID` adds to that run.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from tests.bench import (
    rows,
    scheduler_measure,
    scheduler_planning,
    scheduler_reach,
    scheduler_report,
    scheduler_results,
)
from tests.bench import scheduler_cases as cases
from tests.bench.scheduler_cases import CASES, OURS, PEERS, STOCK, Case, Peer
from tests.bench.scheduler_plane import PODS, Plane, warm_up
from tests.bench.scheduler_results import Results

RESTART, PLANNING = "restart", "planning"
RESTART_NODES = 1000


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_scheduler", description="Compare schedulers on a real API server."
    )
    everything = [*CASES, RESTART, PLANNING]
    parser.add_argument(
        "--case", action="append", choices=everything, help="this case; repeat for several"
    )
    parser.add_argument(
        "--peer", action="append", choices=list(PEERS), help="this scheduler; repeat for several"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--first-round", type=int, default=1, help="the number of the first round")
    parser.add_argument("--run", help="add to this run; without it a new one begins")
    parser.add_argument("--quick", action="store_true", help="one round of the small cases")
    parser.add_argument(
        "--restart-pods", type=int, default=20_000, help="bound pods of the restart case"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing, show the tables")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.rounds = 1
        chosen.case = chosen.case or [*cases.QUICK, PLANNING]
    chosen.case = chosen.case or [*cases.FULL, RESTART, PLANNING]
    return chosen


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    if chosen.report:
        saved = scheduler_results.read()
        if saved is None:
            print("no measurements yet; run `make bench-scheduler`", file=sys.stderr)
            return 2
        return _publish(saved)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    results = scheduler_results.open_run(chosen.run, now=datetime.now(UTC))
    print(f"run {results['run']}; add to it with --run {results['run']}", flush=True)
    binaries = locate.get(versions.DEFAULT_KUBERNETES, env=os.environ, show=Lines(print))
    warm_up(binaries)
    try:
        for name in chosen.case:
            _run_case(name, chosen, results, binaries)
    except KeyboardInterrupt:
        print("interrupted; finished measurements are saved", file=sys.stderr)
        return 130
    return _publish(results)


def _publish(results: Results) -> int:
    figures = scheduler_reach.report(results)
    return rows.publish(scheduler_results.NAME, figures, text=scheduler_report.markdown(results))


def _run_case(name: str, chosen: argparse.Namespace, results: Results, binaries: Binaries) -> None:
    if name == PLANNING:
        for sample in scheduler_planning.measure(rounds=chosen.rounds):
            scheduler_results.add(results, PLANNING, {**sample, **scheduler_results.stamp()})
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-scheduler-") as folder,
        Plane(binaries=binaries, folder=Path(folder) / "plane") as plane,
    ):
        bench = Bench(plane, Path(folder), chosen, results)
        if name == RESTART:
            bench.restarts()
        else:
            bench.case(CASES[name])


class Bench:
    def __init__(
        self, plane: Plane, folder: Path, chosen: argparse.Namespace, results: Results
    ) -> None:
        self._plane = plane
        self._folder = folder
        self._options = chosen
        self._results = results

    def case(self, case: Case) -> None:
        self._plane.add("/api/v1/nodes", cases.nodes(case.nodes, rack=case.rack))
        for number, peer in self.turns(cases.peers_for(case)):
            folder = self._scratch(f"{peer.name}-{number}")
            sample = scheduler_measure.measure(self._plane, case, peer, folder)
            self._record("samples", case.name, peer, number, sample)

    def restarts(self) -> None:
        pods = self._options.restart_pods
        self._plane.add("/api/v1/nodes", cases.nodes(RESTART_NODES, rack=50))
        self._plane.add(
            PODS,
            (
                cases.pod(f"bound-{n:05d}", STOCK, node=cases.node_name(n % RESTART_NODES))
                for n in range(pods)
            ),
        )
        for number, peer in self.turns((STOCK.name, OURS.name)):
            folder = self._scratch(f"{peer.name}-{number}")
            sample = scheduler_measure.restart(self._plane, peer, folder, bound=pods)
            self._record("restarts", RESTART, peer, number, sample)

    def turns(self, able: Sequence[str]) -> list[tuple[int, Peer]]:
        """Round by round, each round beginning with another scheduler."""
        names = [name for name in able if name in (self._options.peer or able)]
        first = self._options.first_round
        return [
            (number, PEERS[names[(number + place) % len(names)]])
            for number in range(first, first + self._options.rounds)
            for place in range(len(names))
        ]

    def _scratch(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _record(
        self, section: str, case: str, peer: Peer, number: int, sample: dict[str, object]
    ) -> None:
        about = {"case": case, "peer": peer.name, "round": number}
        whole = {**about, **sample, **scheduler_results.stamp()}
        scheduler_results.add(self._results, section, whole)
        print(scheduler_report.line(whole), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
