"""Certificates, and the authorities that sign them.

`cryptography` (9 MB) is imported only when one has to be made.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

BACKDATED = 3600.0
"""Seconds by which certificates begin in the past, for clocks that are slow."""


def show_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Makes a context show a certificate: on new connections; open ones are not touched.

    Args:
        context: of a server or a client.
        pem: the private key, then the certificate.

    Raises:
        ssl.SSLError: certificate and key do not fit.
        OSError: no temporary file can be written.
    """
    # OpenSSL reads certificate chains from files only.
    with tempfile.TemporaryDirectory(prefix="kueuelib-") as folder:
        path = Path(folder, "chain.pem")
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)


def new_authority(
    name: str, organizations: tuple[str, ...], now: float, life: float
) -> tuple[bytes, bytes]:
    """A certificate that signs others, and its key, as PEM.

    Args:
        name: of the subject.
        organizations: of the subject.
        now: seconds since the epoch.
        life: how long it is valid, in seconds.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, organizations)
    builder = (
        _builder(subject, subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    return _signed(builder, key, key)


def issue(
    authority: tuple[bytes, bytes],
    name: str,
    organizations: tuple[str, ...],
    now: float,
    life: float,
    hosts: tuple[str, ...] = (),
) -> tuple[bytes, bytes]:
    """A certificate and its key as PEM, for a server when there are hosts, else for a client.

    Args:
        authority: certificate and key of who signs; it does not outlive it.
        name: of the subject.
        organizations: of the subject.
        now: seconds since the epoch.
        life: how long it is valid, in seconds.
        hosts: names and addresses of the server.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer = x509.load_pem_x509_certificate(authority[0])
    signer = load_pem_private_key(authority[1], None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError("the key of the authority is neither an EC nor an RSA key")
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    ends = issuer.not_valid_after_utc.timestamp()
    subject = _subject(name, organizations)
    builder = (
        _builder(subject, issuer.subject, key, now, min(life, ends - now))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if hosts:
        called = x509.SubjectAlternativeName([_called(host) for host in hosts])
        builder = builder.add_extension(called, critical=False)
    return _signed(builder, key, signer)


def _called(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _subject(name: str, organizations: tuple[str, ...]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: float, life: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    begin = datetime.fromtimestamp(now - BACKDATED, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(seconds=life + BACKDATED))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*wanted: str) -> x509.KeyUsage:
    from cryptography import x509

    every = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{name: name in wanted for name in every})


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM), pem_of(key)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
