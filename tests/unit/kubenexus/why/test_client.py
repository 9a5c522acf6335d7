"""Finding the scheduler, and what is said when there is none."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubenexus.why import cli, client


def test_an_address_without_a_scheme_is_rejected() -> None:
    with pytest.raises(client.ExplainError, match="want http://HOST:PORT"):
        client.explain_at("localhost:1", "ns/p")


def test_no_scheduler_responds() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        found = CliRunner().invoke(cli.app, ["pod/p", "--url", url])
    assert (found.exit_code, f"no scheduler responds at {url}" in found.output) == (1, True)


def test_only_pods_are_explained(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli.app, ["job/x", "--kubeconfig", str(tmp_path / "none")])
    assert (found.exit_code, found.output) == (
        2,
        "kubenexus: 'job/x' is not a pod: want pod/NAME\n",
    )
