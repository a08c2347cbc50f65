"""Certificates for one server on loopback: a CA, a serving certificate, a client certificate."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 365


@attrs.frozen
class Credentials:
    """PEM texts.

    Attributes:
        ca: the certificate that signed the others.
        server_certificate: for the addresses of the server.
        server_key: its private key.
        client_certificate: names the administrator.
        client_key: its private key.
    """

    ca: bytes
    server_certificate: bytes
    server_key: bytes
    client_certificate: bytes
    client_key: bytes

    def server_context(self) -> ssl.SSLContext:
        """The context of a server that accepts, but does not require, client certificates of
        the CA.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        show_certificate(context, self.server_key + self.server_certificate)
        context.load_verify_locations(cadata=self.ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context


def show_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Loads a certificate into a context.

    Args:
        context: of a server or a client.
        pem: the private key, then the certificate.
    """
    # OpenSSL reads certificate chains from files only.
    with tempfile.TemporaryDirectory(prefix="kueuelib-") as folder:
        path = Path(folder, "chain.pem")
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)


def _name(common: str, *organizations: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
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


class Authority:
    """A certificate authority that lives as long as the process."""

    def __init__(self, now: float, name: str = "kueuelib-ca") -> None:
        moment = dt.datetime.fromtimestamp(now, dt.UTC)
        self._from = moment - dt.timedelta(minutes=5)
        self._until = moment + dt.timedelta(days=VALID_DAYS)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        public = self._key.public_key()
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        self._certificate = (
            self._builder(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(self._identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The CA's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._from)
            .not_valid_after(self._until)
        )

    def issue(
        self, common: str, organizations: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> tuple[bytes, bytes]:
        """A certificate and its key as PEM, for a server if `hosts` are given, otherwise for a
        client.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            self._builder(_name(common, *organizations), public)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]),
                critical=False,
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), pem_of(key)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def credentials(now: float, hosts: tuple[str, ...], user: str, group: str) -> Credentials:
    """Everything that one server and its administrator need; `now` in seconds since the epoch."""
    authority = Authority(now)
    server, server_key = authority.issue("kueuelib-apiserver", hosts=hosts)
    client, client_key = authority.issue(user, (group,))
    return Credentials(authority.pem, server, server_key, client, client_key)
