"""The generated messages are those of the .proto file: `make generate` writes them."""

import subprocess
import sys
from pathlib import Path

import pytest

import policies

PROTO = Path("policies/cel/proto/checked_expr.proto")
ROOT = Path(policies.__file__).parent.parent


@pytest.mark.parametrize("suffix", [".py", ".pyi"])
def test_messages_are_generated_from_the_proto_file(suffix: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}"]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, *outputs, str(PROTO)], check=True)
    generated = PROTO.with_name(f"{PROTO.stem}_pb2{suffix}")
    assert (ROOT / generated).read_text() == (tmp_path / generated).read_text()
