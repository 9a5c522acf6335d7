import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubenexus.dev import certificates
from kubenexus.dev.certificates import KeyPair
from webhook import registration, server
from webhook.server import Certificate, Options, OptionsError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


def a_pair() -> KeyPair:
    ca = certificates.authority("ca", now=NOW, valid_for=YEAR)
    return certificates.server(
        ca, common_name="webhook", names=["127.0.0.1"], now=NOW, valid_for=YEAR
    )


def put(folder: Path, pair: KeyPair) -> tuple[Path, Path]:
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return cert, key


def test_a_certificate_is_read_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    certificate = Certificate(*put(tmp_path, a_pair()))
    first = certificate.context()
    assert certificate.context() is first
    put(tmp_path, a_pair())
    assert certificate.context() is not first


def test_files_caught_in_the_middle_of_a_change_keep_the_last_good_one(tmp_path: Path) -> None:
    cert, _ = put(tmp_path, a_pair())
    certificate = Certificate(*put(tmp_path, a_pair()))
    first = certificate.context()
    cert.write_bytes(a_pair().certificate)  # a certificate whose key is still the old one
    assert certificate.context() is first
    cert.unlink()
    assert certificate.context() is first


def test_old_tls_is_refused(tmp_path: Path) -> None:
    context = Certificate(*put(tmp_path, a_pair())).context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_missing_certificate_is_one_clear_message(tmp_path: Path) -> None:
    options = Options(cert_file=tmp_path / "none.crt", key_file=tmp_path / "none.key")
    with pytest.raises(
        OptionsError, match=r"none\.crt with key .* cannot be used: .*; give a PEM certificate"
    ):
        server.main(options)


def test_the_configurations_send_what_is_judged_and_leave_out_what_must_run() -> None:
    mutating, validating = registration.configurations(ca_pem=b"ca", base_url="https://127.0.0.1:1")
    [hook] = mutating["webhooks"]
    assert hook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "Namespaced",
        }
    ]
    judges = {judge["name"]: judge for judge in validating["webhooks"]}
    sent = {
        (rule["apiGroups"][0], name)
        for judge in judges.values()
        for rule in judge["rules"]
        for name in rule["resources"]
    }
    assert {
        ("", "pods"),
        ("", "pods/ephemeralcontainers"),
        ("", "pods/resize"),
        ("", "pods/status"),
        ("", "pods/binding"),
        ("", "bindings"),
        ("", "namespaces"),
        ("batch", "jobs"),
        ("kubeflow.org", "pytorchjobs"),
        ("ray.io", "rayclusters"),
    } <= sent
    for webhook in (hook, *judges.values()):
        [excluded] = webhook["namespaceSelector"]["matchExpressions"]
        assert (webhook["failurePolicy"], webhook["clientConfig"]["caBundle"]) == ("Fail", "Y2E=")
        assert excluded == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "kube-node-lease", "kubenexus-system"],
        }
