"""
When the webhook's certificate and its CA are renewed. Pure: the time is passed in.

    no CA                    --> new CA and leaf
    CA expires soon          --> a new CA beside the old one; the leaf stays for now
    new CA is distributed    --> leaf of the new CA
    leaf expires soon        --> leaf
    neither                  --> nothing

Clients trust every valid CA of the bundle. A leaf of a new CA is issued only after the bundle had
`SETTLE` to reach the webhook configurations, so that clients always trust the served leaf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from kubenexus import pki
from kubenexus.pki import KeyPair

AUTHORITY_DAYS: Final = timedelta(days=3650)
AUTHORITY_RENEW: Final = timedelta(days=365)
LEAF_DAYS: Final = timedelta(days=90)
LEAF_RENEW: Final = timedelta(days=30)
SETTLE: Final = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """The newest CA, the bundle that clients trust, and the leaf."""

    authority: KeyPair
    bundle: bytes
    leaf: KeyPair


def check(stored: StoredCertificates) -> None:
    """`ValueError` where the stored data are no certificates."""
    x509.load_pem_x509_certificates(stored.bundle)
    _names(stored.leaf.certificate)
    x509.load_pem_x509_certificate(stored.authority.certificate)


def rotate(
    stored: StoredCertificates | None, *, names: Sequence[str], now: datetime
) -> StoredCertificates:
    """The certificates to store now; equal to `stored` where nothing is due."""
    if stored is None or _over(stored.authority.certificate, now):
        authority = _authority(now)
        return StoredCertificates(authority, authority.certificate, _leaf(authority, names, now))
    authority, bundle = stored.authority, _valid(stored.bundle, now)
    if _left(authority.certificate, now) < AUTHORITY_RENEW:
        authority = _authority(now)
        bundle = authority.certificate + bundle
    leaf = stored.leaf
    if _is_due(leaf, authority, names=names, now=now):
        leaf = _leaf(authority, names, now)
    return StoredCertificates(authority, bundle, leaf)


def _is_due(leaf: KeyPair, authority: KeyPair, *, names: Sequence[str], now: datetime) -> bool:
    if _names(leaf.certificate) != tuple(names) or _over(leaf.certificate, now):
        return True
    is_known = now - _begin(authority.certificate) >= SETTLE
    is_old = _left(leaf.certificate, now) < LEAF_RENEW or not _signed(leaf, authority)
    return is_known and is_old


def _authority(now: datetime) -> KeyPair:
    return pki.authority("kubenexus-webhook-ca", now=now, valid_for=AUTHORITY_DAYS)


def _leaf(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    return pki.server(authority, common_name=names[0], names=names, now=now, valid_for=LEAF_DAYS)


def _signed(leaf: KeyPair, authority: KeyPair) -> bool:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    try:
        x509.load_pem_x509_certificate(leaf.certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: bytes) -> tuple[str, ...]:
    try:
        extension = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound as exc:
        raise ValueError("the certificate has no host name") from exc
    return tuple(extension.value.get_values_for_type(x509.DNSName))


def _valid(bundle: bytes, now: datetime) -> bytes:
    certificates = x509.load_pem_x509_certificates(bundle)
    return b"".join(
        certificate.public_bytes(serialization.Encoding.PEM)
        for certificate in certificates
        if certificate.not_valid_after_utc > now
    )


def _begin(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc + pki.BACKDATE


def _left(certificate: bytes, now: datetime) -> timedelta:
    return pki.expires(certificate) - now


def _over(certificate: bytes, now: datetime) -> bool:
    return _left(certificate, now) <= timedelta(0)
