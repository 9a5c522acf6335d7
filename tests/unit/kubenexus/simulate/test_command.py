"""`kubenexus simulate` in virtual time, as it is typed: whole outputs, and bad input in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubenexus import cli
from tests.pages import ROOT

CLUSTER = """apiVersion: dev.kubenexus.io/v1alpha1
kind: Cluster
namespaces: [{name: a, tenant: a}, {name: b, tenant: b}, {name: c, tenant: c}]
nodes: [{name: n, cpu: 16, memory: 64Gi, gpus: {model: T4, count: 4, memory: 16Gi}}]
"""
SHARING = """apiVersion: policy.kubenexus.io/v1alpha1
kind: PlatformPolicy
metadata: {name: sharing}
spec:
  sharing:
    tenants: [{name: a, weight: 2}, {name: b}, {name: c}]
"""
GUARANTEE = """apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: c}
spec:
  tenant: {name: c}
  quota: {guaranteed: {nvidia.com/gpu: 1}}
"""
# One GPU is free from the beginning on; the gang waits for all four, which are free after 2h.
JOBS = """arrives,tenant,name,pods,gpus,lasts
0s,a,first,1,2,1h
0s,b,second,1,1,2h
10m,a,wide,2,2,30m
20m,c,short,1,1,30m
30m,c,long,1,1,3h
5h,c,late,1,1,1h
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a%s}
spec:
  schedulerName: kubenexus-scheduler
  containers: [{name: main, resources: {requests: {cpu: 1}}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "sharing.yaml").write_text(SHARING)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def ran(*args: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli.app, ["simulate", *map(str, args)], prog_name="kubenexus")
    return found.exit_code, found.stdout, found.stderr


def test_three_tenants_and_the_other_strategies_beside(folder: Path) -> None:
    code, out, err = ran(folder, "--for", "4h", "--compare")
    assert (code, err) == (0, "")
    assert (
        out
        == """Cluster: 1 node, 16 CPUs, 64Gi memory, 4 nvidia.com/gpu
5 units of 3 tenants; time in use is counted for 4h
1 workload arrives later: left out

TENANT  UNITS  WAIT P50  P95    LONGEST  GPU TIME  SHARE  FAIR SHARE  PREEMPTED  ESTIMATED
a       2      0s        1h50m  1h50m    4.0h      50 %   50 %        0          1
b       1      0s        0s     0s       2.0h      25 %   25 %        0          0
c       2      0s        2h     2h       2.0h      25 %   25 %        0          1
all     5      0s        2h     2h       8.0h      100 %  100 %       0          2

STRATEGY  GPUS IN USE  WAIT P50  P95    LARGEST GANGS P95  DEVIATION  NEVER  PREEMPTED
fifo      58.9 %       1h50m     2h10m  1h50m              -          0      0
greedy    47.7 %       0s        3h40m  3h40m              -          0      0
ours      64.3 %       0s        2h     1h50m              -          0      0
"""
    )


def test_the_timeline(folder: Path) -> None:
    _, out, _ = ran(folder, "--for", "4h", "--timeline")
    assert (
        out.partition("AT     ")[2]
        == """EVENT            UNIT
0s     arrived          a/first-0
0s     arrived          b/second-0
0s     started          a/first-0   on n
0s     started          b/second-0  on n
10m    arrived          a/wide
10m    start estimated  a/wide      by 2h, when b/second-0, a/first-0 have ended
20m    arrived          c/short-0
20m    started          c/short-0   on n
30m    arrived          c/long-0
50m    ended            c/short-0
1h     ended            a/first-0
2h     ended            b/second-0
2h     started          a/wide      on n
2h1s   start estimated  c/long-0    by 2h30m, when a/wide-0, a/wide-1 have ended
2h30m  ended            a/wide
2h30m  started          c/long-0    on n
5h30m  ended            c/long-0
"""
    )


def test_a_policy_is_tried_against_those_in_force(folder: Path) -> None:
    (folder / "tried").mkdir()
    (folder / "tried" / "c.yaml").write_text(GUARANTEE)
    code, out, err = ran(folder, "--for", "4h", "--what-if", folder / "tried")
    assert (code, err) == (0, "")
    assert out.splitlines()[-3:] == [
        "a waits longer: p95 1h50m before, 3h40m with them; share 50 % before, 33 % with them",
        "b waits as long: p95 0s before, 0s with them; share 25 % before, 24 % with them",
        "c waits shorter: p95 2h before, 20m with them; share 25 % before, 43 % with them",
    ]


def test_what_if_policies_replace_those_of_the_same_names(folder: Path) -> None:
    tried = folder / "tried"
    tried.mkdir()
    (tried / "sharing.yaml").write_text(SHARING.replace("weight: 2", "weight: 6"))
    _, out, _ = ran(folder, "--for", "4h", "--what-if", tried, "-o", "json")
    body = json.loads(out)
    assert [one["tenants"][0]["fair_share"] for one in (body["without"], body)] == [0.5, 0.75]


def test_those_that_arrive_together_stand_as_in_the_list(folder: Path) -> None:
    names = ("z", "m", "a", "k", "b")
    lines = "".join(f"0s,a,{name},4,1h\n" for name in names)
    (folder / "jobs.csv").write_text(f"arrives,tenant,name,gpus,lasts\n{lines}")
    _, out, _ = ran(folder, "--for", "1h", "--timeline", "-o", "json")
    timeline = json.loads(out)["timeline"]
    starts = [one["unit"] for one in timeline if one["kind"] == "started"]
    assert starts == [f"a/{name}-0" for name in names]


def test_programs_read_seconds(folder: Path) -> None:
    (folder / "jobs.csv").write_text("arrives,tenant,lasts,gpus\n0s,a,1m,1\n0s,a,1m,9\n")
    code, out, _ = ran(folder, "--for", "1h", "--timeline", "-o", "json")
    body = json.loads(out)
    assert (code, body["tenants"][0]) == (
        0,
        {
            "name": "a",
            "units": 2,
            "never": 1,
            "wait_p50": 0.0,
            "wait_p95": None,
            "wait_most": None,
            "time": 60.0,
            "share": 1.0,
            "fair_share": 1.0,
            "preempted": 0,
            "lost": 0,
            "estimated": 0,
            "delayed": 0,
        },
    )
    assert body["timeline"][-1] == {
        "at": 60.0,
        "kind": "ended",
        "unit": "a/job-1-0",
        "tenant": "a",
        "text": "",
    }


def test_manifests_carry_arrival_and_run_time(folder: Path) -> None:
    (folder / "jobs.csv").unlink()
    marks = ", annotations: {dev.kubenexus.io/arrives: 5m, dev.kubenexus.io/run-for: 20m}"
    (folder / "p.yaml").write_text(POD % marks)
    _, out, _ = ran(folder, "--for", "1h", "--timeline")
    assert (
        out.partition("AT   ")[2]
        == """EVENT    UNIT
5m   arrived  a/p
5m   started  a/p   on n
25m  ended    a/p
"""
    )
    assert "CPU TIME" in out


def test_denied_pods_and_pods_of_other_schedulers_are_noted(folder: Path) -> None:
    gone = POD.replace("namespace: a", "namespace: gone") % ""
    other = (POD % "").replace("kubenexus-scheduler", "default-scheduler").replace("p,", "q,")
    (folder / "p.yaml").write_text(f"{gone}---\n{other}")
    code, out, _ = ran(folder, "--for", "4h")
    assert (code, out.splitlines()[2:5]) == (
        0,
        [
            'Pod gone/p is denied: namespaces "gone" not found',
            "1 pod belongs to another scheduler: no capacity is charged",
            "1 workload arrives later: left out",
        ],
    )


JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: a}
spec:
  template:
    spec:
      schedulerName: kubenexus-scheduler
      restartPolicy: Never
      containers: [{name: main, resources: {requests: {cpu: 1}}}]
"""


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        pytest.param(
            JOB,
            "/m.yaml:1:1: the run time of this Job is unknown; give its pods the annotation "
            "scheduling.kubenexus.io/expected-duration or dev.kubenexus.io/run-for",
            id="a job of unknown run time",
        ),
        pytest.param(
            POD % ", annotations: {dev.kubenexus.io/arrives: noon}",
            "/m.yaml:3:75: dev.kubenexus.io/arrives: found 'noon', want a duration such as 30s, "
            "10m or 1h30m",
            id="an arrival that is no duration",
        ),
        pytest.param(
            POD % ", annotations: {dev.kubenexus.io/run-for: ever}",
            "/m.yaml:1:1: dev.kubenexus.io/run-for: found 'ever', want a duration such as 30s, "
            "10m or 1h30m",
            id="a duration that is none",
        ),
        pytest.param(
            f"{SHARING}---\n{JOB}",
            "/m.yaml:8:1: a file holds policies or manifests; put this into one of its own",
            id="a manifest among policies",
        ),
        pytest.param(
            SHARING.replace("weight: 2", "weight: 0").replace("sharing}", "other}"),
            "/m.yaml:6:33: spec.sharing.tenants[0].weight: found 0: input should be "
            "greater than or equal to 1",
            id="a policy that is faulty",
        ),
    ],
)
def test_bad_input_is_one_line_with_its_place(manifest: str, want: str, folder: Path) -> None:
    (folder / "sharing.yaml").unlink()
    (folder / "m.yaml").write_text(manifest)
    assert ran(folder, "--for", "1h") == (2, "", f"kubenexus: {folder}{want}\n")


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param(
            ["--for", "long"],
            "--for: found 'long', want a duration such as 30s, 10m or 1h30m",
            id="no duration",
        ),
        pytest.param(["--for", "0s"], "--for: found '0s', want more than 0s", id="no time"),
        pytest.param(
            ["--timeline"],
            "--timeline needs virtual time; add --for 6h, or --jobs FILE",
            id="a timeline without time",
        ),
        pytest.param(
            ["--compare"],
            "--compare needs virtual time; add --for 6h, or --jobs FILE",
            id="other strategies without time",
        ),
    ],
)
def test_options_that_do_not_go_together(options: list[str], want: str, folder: Path) -> None:
    assert ran(folder, *options) == (2, "", f"kubenexus: {want}\n")


def test_without_time_a_list_of_jobs_is_passed_over_and_policies_hold(folder: Path) -> None:
    (folder / "p.yaml").write_text(POD % "")
    code, out, _ = ran(folder)
    assert (code, out.splitlines()[-1]) == (0, "1 manifest: 1 admitted, 0 denied; pods: 1 placed.")


def test_the_example_shows_the_tenants_that_wait_longer_for_a_guarantee() -> None:
    code, out, _ = ran(
        ROOT / "examples/tenants", "--for", "6h", "--what-if", ROOT / "examples/tenants/what-if"
    )
    assert (code, "speech waits shorter" in out, "lost" in out) == (0, True, True)
