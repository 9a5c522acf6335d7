"""
Certificates: an authority, server and client leaves under it, and a key pair that signs tokens.

Pure but for the randomness of the keys: the time and the validity are passed in, PEM bytes come
out. ECDSA P-256 throughout. No files are read or written; see `install.cert_rotation`
for renewal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A verifier whose clock is a little behind must not find the certificate "not yet valid".
BACKDATE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class SigningPair:
    """A private key and its public half, both PEM, without a certificate."""

    private: bytes
    public: bytes


def authority(name: str, *, now: datetime, valid_for: timedelta) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key.public_key(), now=now, valid_for=valid_for)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _private_pem(key))


def server(
    ca: KeyPair, *, common_name: str, names: Sequence[str], now: datetime, valid_for: timedelta
) -> KeyPair:
    """A serving certificate for `names`: host names and IP addresses, as clients spell them."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return _leaf(ca, subject, ExtendedKeyUsageOID.SERVER_AUTH, names, now, valid_for)


def client(
    ca: KeyPair, *, user: str, groups: Sequence[str] = (), now: datetime, valid_for: timedelta
) -> KeyPair:
    """Kubernetes reads the user off the common name and the groups off the organisations."""
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in sorted(groups)),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    return _leaf(ca, subject, ExtendedKeyUsageOID.CLIENT_AUTH, (), now, valid_for)


def signing_pair() -> SigningPair:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return SigningPair(_private_pem(key), public)


def expires(certificate: bytes) -> datetime:
    """The end of validity of a PEM certificate, in UTC."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _leaf(
    ca: KeyPair,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    names: Sequence[str],
    now: datetime,
    valid_for: timedelta,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"the authority's key is a {type(issuer_key).__name__}; "
            "only elliptic-curve keys, as made by `authority`, are accepted"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now=now, valid_for=valid_for)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return KeyPair(_pem(builder.sign(issuer_key, hashes.SHA256())), _private_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    now: datetime,
    valid_for: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
