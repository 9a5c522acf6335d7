from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from kubenexus import pki
from kubenexus.install import cert_rotation
from kubenexus.install.cert_rotation import StoredCertificates

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("webhook", "webhook.ns.svc", "webhook.ns.svc.cluster.local")
DAY = timedelta(days=1)
YEAR = timedelta(days=365)


def stored_certificates(*at: timedelta) -> StoredCertificates:
    """What is stored after a rotation at each of these times."""
    found = None
    for when in (timedelta(0), *at):
        found = cert_rotation.rotate(found, names=NAMES, now=START + when)
    assert found is not None
    return found


def is_trusted(leaf: bytes, bundle: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf)
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:  # every reason not to be its issuer counts the same
            continue
        return True
    return False


def test_the_first_certificate_serves_the_service_under_its_own_authority() -> None:
    found = stored_certificates()
    names = x509.load_pem_x509_certificate(found.leaf.certificate).extensions
    assert (
        tuple(
            names.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
                x509.DNSName
            )
        ),
        is_trusted(found.leaf.certificate, found.bundle),
        pki.expires(found.leaf.certificate) - START,
    ) == (NAMES, True, cert_rotation.LEAF_DAYS)


@pytest.mark.parametrize(
    ("after", "names", "changed"),
    [
        pytest.param(DAY, NAMES, set(), id="a young certificate stays"),
        pytest.param(59 * DAY, NAMES, set(), id="more than a third of its life is left"),
        pytest.param(61 * DAY, NAMES, {"leaf"}, id="less than a third of its life is left"),
        pytest.param(100 * DAY, NAMES, {"leaf"}, id="the certificate is over"),
        pytest.param(DAY, ("other",), {"leaf"}, id="the service has another name"),
        pytest.param(11 * YEAR, NAMES, {"authority", "bundle", "leaf"}, id="the authority is over"),
    ],
)
def test_which_certificates_are_renewed(
    after: timedelta, names: tuple[str, ...], changed: set[str]
) -> None:
    before = stored_certificates()
    now = cert_rotation.rotate(before, names=names, now=START + after)
    parts = ("authority", "bundle", "leaf")
    assert {part for part in parts if getattr(now, part) != getattr(before, part)} == changed


def test_an_authority_is_replaced_without_a_moment_of_distrust() -> None:
    due = 9 * YEAR  # a day later, less than a year of the first authority is left
    first = cert_rotation.rotate(stored_certificates(), names=NAMES, now=START + due - DAY)
    second = cert_rotation.rotate(first, names=NAMES, now=START + due + DAY)
    third = cert_rotation.rotate(second, names=NAMES, now=START + due + 2 * DAY)
    # A client trusts the bundle of the previous rotation until it receives the newest.
    assert {
        "the new authority stands beside the old": second.bundle
        == second.authority.certificate + first.bundle,
        "and the leaf stays": second.leaf == first.leaf,
        "then comes a leaf of the new one": is_trusted(
            third.leaf.certificate, second.authority.certificate
        ),
        "which clients know by then": is_trusted(third.leaf.certificate, second.bundle),
        "the authority is not made again": third.authority == second.authority,
    } == dict.fromkeys(
        (
            "the new authority stands beside the old",
            "and the leaf stays",
            "then comes a leaf of the new one",
            "which clients know by then",
            "the authority is not made again",
        ),
        True,
    )


def test_a_certificate_without_names_is_nothing_of_ours() -> None:
    found = stored_certificates()
    with pytest.raises(ValueError, match="has no host name"):
        cert_rotation.check(StoredCertificates(found.authority, found.bundle, found.authority))
