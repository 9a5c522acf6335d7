from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from kubenexus import pki
from kubenexus.pki import KeyPair

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def an_authority(name: str = "ca") -> KeyPair:
    return pki.authority(name, now=NOW, valid_for=10 * DAY)


def a_server(ca: KeyPair, *names: str) -> KeyPair:
    return pki.server(ca, common_name="web", names=names, now=NOW, valid_for=DAY)


def verifies(ca: KeyPair, leaf: KeyPair, name: str, *, at: datetime) -> bool:
    """What a strict TLS client says, in the words of another implementation."""
    store = Store([x509.load_pem_x509_certificate(ca.certificate)])
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(leaf.certificate), [])
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "at", "want"),
    [
        pytest.param("localhost", NOW, True, id="a name of the server, now"),
        pytest.param(
            "localhost", NOW - timedelta(minutes=4), True, id="a client whose clock is behind"
        ),
        pytest.param("elsewhere", NOW, False, id="another name"),
        pytest.param("localhost", NOW + 2 * DAY, False, id="after its end"),
    ],
)
def test_a_server_certificate_is_trusted(name: str, at: datetime, want: bool) -> None:
    ca = an_authority()
    assert verifies(ca, a_server(ca, "localhost", "127.0.0.1"), name, at=at) is want


def test_a_certificate_of_another_authority_is_not_trusted() -> None:
    stranger = an_authority()
    assert not verifies(an_authority(), a_server(stranger, "localhost"), "localhost", at=NOW)


def test_a_server_certificate_names_hosts_and_addresses() -> None:
    pair = a_server(an_authority(), "localhost", "127.0.0.1", "::1")
    found = x509.load_pem_x509_certificate(pair.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1", "::1"]


def test_a_client_certificate_carries_the_user_and_its_groups() -> None:
    pair = pki.client(an_authority(), user="ann", groups=["b", "a"], now=NOW, valid_for=DAY)
    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    assert [(part.oid, part.value) for part in subject] == [
        (NameOID.ORGANIZATION_NAME, "a"),
        (NameOID.ORGANIZATION_NAME, "b"),
        (NameOID.COMMON_NAME, "ann"),
    ]


def test_the_end_of_validity_is_read_back() -> None:
    assert pki.expires(a_server(an_authority(), "a").certificate) == NOW + DAY


def test_the_halves_of_a_signing_pair_belong_together() -> None:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pair = pki.signing_pair()
    private = serialization.load_pem_private_key(pair.private, password=None)
    public = serialization.load_pem_public_key(pair.public)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    signature = private.sign(b"token", ec.ECDSA(hashes.SHA256()))
    public.verify(signature, b"token", ec.ECDSA(hashes.SHA256()))
