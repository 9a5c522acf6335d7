"""Lists of jobs: what is made of a line, and what is said of one that cannot be read."""

from pathlib import Path
from typing import Any

import pytest

from kubenexus.simulate.virtual_time import jobs_csv
from policies.documents.yaml_reader import DocumentError

NAMESPACES: list[dict[str, Any]] = [
    {"metadata": {"name": "plain"}},
    {"metadata": {"name": "a-1", "labels": {"tenant.kubenexus.io/name": "a"}}},
    {"metadata": {"name": "a-2", "labels": {"tenant.kubenexus.io/name": "a"}}},
]
HEAD = "arrives,tenant,lasts,pods,gpus,states,name,namespace,type,preemptible,priority,cpu,memory\n"


def read(folder: Path, text: str) -> list[Any]:
    (folder / "jobs.csv").write_text(text)
    return [one.value for one in jobs_csv.read(folder / "jobs.csv", NAMESPACES)]


def a_job(
    name: str,
    *,
    namespace: str = "a-1",
    arrives: str = "0s",
    pods: int = 1,
    labels: dict[str, str],
    run_time: str,
    states: str | None,
    amounts: dict[str, str],
    priority: str = "",
) -> dict[str, Any]:
    annotations = {"dev.kubenexus.io/run-for": run_time}
    if states is not None:
        annotations["scheduling.kubenexus.io/expected-duration"] = states
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"dev.kubenexus.io/arrives": arrives},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "schedulerName": "kubenexus-scheduler",
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
                    ],
                    **({"priorityClassName": priority} if priority else {}),
                },
            },
        },
    }


SMALL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(
            "0s,a,1h",
            a_job("job-1", labels={}, run_time="1h", states="1h", amounts=SMALL),
            id="what is not said has a default",
        ),
        pytest.param(
            "5m,a,1h,4,8,50m,train",
            a_job(
                "train",
                arrives="5m",
                pods=4,
                labels={
                    "pod-group.scheduling.kubenexus.io/name": "train",
                    "pod-group.scheduling.kubenexus.io/min-available": "4",
                },
                run_time="1h",
                states="50m",
                amounts={**SMALL, "nvidia.com/gpu": "8"},
            ),
            id="several pods are a gang, and may be wrong about how long they run",
        ),
        pytest.param(
            "0s,,1h,1,0,nothing,x,plain,batch,true,high,500m,2Gi",
            a_job(
                "x",
                namespace="plain",
                labels={
                    "workload.kubenexus.io/type": "batch",
                    "workload.kubenexus.io/preemptible": "true",
                },
                run_time="1h",
                states=None,
                amounts={"cpu": "500m", "memory": "2Gi"},
                priority="high",
            ),
            id="a namespace instead of a tenant, and a job that says nothing of its duration",
        ),
    ],
)
def test_a_line_is_a_job(line: str, want: dict[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path, f"{HEAD}\n{line}\n") == [want]


def test_a_spreadsheet_begins_its_file_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes(b"\xef\xbb\xbfarrives,tenant,lasts\r\n0s, a ,1h\r\n")
    [found] = jobs_csv.read(tmp_path / "jobs.csv", NAMESPACES)
    assert (found.value["metadata"]["namespace"], found.place().line) == ("a-1", 2)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            f"{HEAD}0s,a,\n",
            ":2:1: lasts: is missing; write a duration such as 30s, 10m or 1h30m",
            id="a duration that is missing",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h\nsoon,a,1h\n",
            ":3:1: arrives: found 'soon', want a duration such as 30s, 10m or 1h30m",
            id="an arrival that is no duration",
        ),
        pytest.param(
            f"{HEAD}0s,a,0s\n",
            ":2:1: lasts: found '0s', want 1s or more",
            id="a job that takes no time",
        ),
        pytest.param(
            f"{HEAD}0s,z,1h\n",
            ":2:1: tenant: no namespace belongs to 'z'; tenants of the cluster file are: a",
            id="an unknown tenant",
        ),
        pytest.param(
            f"{HEAD}0s,,1h\n",
            ":2:1: tenant: is missing; write the tenant of the job",
            id="a job without a tenant",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,0\n",
            ":2:1: pods: found '0', want a whole number, 1 or more",
            id="a gang without pods",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,1,0.5\n",
            ":2:1: gpus: found '0.5', want a whole number, 0 or more",
            id="half a GPU",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,1,1,often\n",
            ":2:1: states: found 'often', want a duration such as 30s, 10m or 1h30m",
            id="a stated duration that is none",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,,,,Big\n",
            ":2:1: name: found 'Big', want at most 52 small letters, digits and hyphens",
            id="a name that no object may have",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,,,,,,game\n",
            ":2:1: type: found 'game', want one of training, inference, batch, service, "
            "interactive",
            id="a type that is none",
        ),
        pytest.param(
            f"{HEAD}0s,a,1h,,,,,,,,,1,1GB\n",
            ":2:1: memory: found '1GB', want a quantity such as 500m, 2, 1.5Gi or 80G",
            id="a quantity that is none",
        ),
        pytest.param(
            "arrives,tenant,lasts\n0s,a,1h,9\n",
            ":2:1: found 4 values for 3 columns",
            id="more values than columns",
        ),
        pytest.param(
            "arrives,tenant,duration\n",
            ":1:1: found column 'duration', want some of arrives, lasts, tenant, namespace, name, "
            "pods, gpus, cpu, memory, states, priority, type, preemptible",
            id="an unknown column",
        ),
        pytest.param(
            "arrives,lasts,lasts,tenant\n",
            ":1:1: column 'lasts' is listed twice; remove one",
            id="a column that stands there twice",
        ),
        pytest.param(
            "tenant,lasts\n",
            ":1:1: no column 'arrives'; the first line names the columns",
            id="no column for arrivals",
        ),
        pytest.param(
            "arrives,lasts\n",
            ":1:1: no column 'tenant' and none 'namespace'; add one of them",
            id="no column for tenants",
        ),
        pytest.param(HEAD, ": lists no job; write one line for each", id="no job at all"),
    ],
)
def test_an_unreadable_line_is_reported_with_its_place(
    text: str, want: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'jobs.csv'}{want}"


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file; check the path"):
        jobs_csv.read(tmp_path / "jobs.csv", NAMESPACES)
