from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster import errors
from kubenexus.install import probe, uninstall
from kubenexus.install.cli import app
from policies import vocabulary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["register", "--configurations={here}/none", "--ca-file=x", "--url=https://x"],
            "No such file",
            id="a file that is not there",
        ),
        pytest.param(
            ["register", "--configurations={here}/pod.yaml", "--ca-file=x", "--url=https://x"],
            "want MutatingWebhookConfiguration and ValidatingWebhookConfiguration; found ['Pod']",
            id="something else than webhook configurations",
        ),
        pytest.param(
            ["cleanup", "--secret=x"], "--secret was given without --namespace", id="half a name"
        ),
        pytest.param(
            ["probe", "--kubeconfig={here}/none"], "none", id="a kubeconfig that is not there"
        ),
    ],
)
def test_bad_input_is_one_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("kind: Pod\n")
    result = CliRunner().invoke(app, [word.format(here=tmp_path) for word in arguments])
    assert (result.exit_code, message in result.stderr, "Traceback" in result.stderr) == (
        2,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param(
            'admission webhook "validate.workloads.kubenexus.io" denied the request: no',
            True,
            id="a webhook of this product said no",
        ),
        pytest.param(
            'admission webhook "validate.example.io" denied the request: no', False, id="another"
        ),
        pytest.param(
            'failed calling webhook "validate.workloads.kubenexus.io": refused',
            False,
            id="no answer",
        ),
        pytest.param("exceeded quota: compute", False, id="a quota"),
    ],
)
def test_which_webhook_denied_the_request(message: str, want: bool) -> None:
    assert probe.is_denial(errors.Refused(message)) is want


def test_only_our_gate_is_removed() -> None:
    assert list(uninstall.removal(1)) == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": vocabulary.GANG_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]
