"""Certificates: made, signed, checked and loaded; those of webhook servers among them.

`cryptography` (9 MB) is imported only when one has to be made.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kueuelib.errors import ConfigError
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.logs import get_logger

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from kueuelib.runtime.telemetry import Telemetry


KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
"""The name by which kubelets know an API server."""
KUBELET_CLIENT_GROUPS: Final = ("kubeadm:cluster-admins", "system:masters")
"""One of these is in its certificate; kubeadm writes the first, before 1.29 the second."""

# ---- certificates that another program makes, as files -------------------------------------------


class CertificateFiles:
    """Loads `tls.crt` and `tls.key` of a folder, again whenever they change; a `Manager`'s part.

    Args:
        contexts: of the servers.
        folder: where another program writes and renews the files.
        period: seconds between two looks.
    """

    def __init__(
        self,
        contexts: Iterable[ssl.SSLContext],
        folder: str | Path,
        *,
        period: float = 10.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._contexts = tuple(contexts)
        self._folder = Path(folder)
        self._reads, self._errors = (
            None if telemetry is None else telemetry.counter(f"certwatcher_{name}_total", text)
            for name, text in (
                ("read_certificate", "Certificates read from files."),
                ("read_certificate_errors", "Certificates that could not be read."),
            )
        )
        self._period = period
        self._loaded = b""
        self._log = get_logger("certificates")

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep the contexts up to date until cancelled.

        Raises:
            ConfigError: there is no usable certificate at the start.
        """
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                str(self._folder),
                f"holds no usable tls.crt and tls.key ({error})",
                "put the servers' certificate and key there",
            ) from error
        ready()
        while True:
            await SYSTEM_CLOCK.sleep(self._period)
            try:
                self._load()
            except (OSError, ssl.SSLError) as error:
                self._log.warning("the old certificate is kept", error=str(error))

    def _load(self) -> None:
        if self._reads is not None:
            self._reads.inc()
        try:
            self._look()
        except (OSError, ssl.SSLError):
            if self._errors is not None:
                self._errors.inc()
            raise

    def _look(self) -> None:
        cert, key = self._folder / "tls.crt", self._folder / "tls.key"
        content = cert.read_bytes() + key.read_bytes()
        if content != self._loaded:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)  # all or none
            for context in self._contexts:
                context.load_cert_chain(cert, key)
            self._loaded = content
            self._log.info("certificate loaded", folder=str(self._folder))


# --------------------------------------------------------------------------------------------------

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


# Certificates of a webhook server: made, checked and loaded; nothing is stored or sent here.
# A certificate is checked in the way of the API server: by a TLS handshake, in memory.

DAY = 86400.0
AUTHORITY_LIFE = 3650 * DAY
SERVER_LIFE = 365 * DAY
RENEW_BEFORE = 60 * DAY
"""Seconds before its end at which a certificate is replaced."""
FIELDS = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""The keys of the Secret."""


@attrs.frozen
class Certificates:
    """An authority and a server certificate of its making, all PEM.

    Attributes:
        ca_cert: what to trust: the present authority, and after it those it replaced.
        ca_key: the present authority's key.
        tls_cert: the server's certificate.
        tls_key: its key.
    """

    ca_cert: bytes
    ca_key: bytes = attrs.field(repr=False)
    tls_cert: bytes
    tls_key: bytes = attrs.field(repr=False)


def _frozen(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen
class ServerNames:
    """What a server is called: host names and addresses.

    Attributes:
        hosts: for example `kueue-webhook-service.kueue-system.svc`.
        addresses: for example `127.0.0.1`.
    """

    hosts: frozenset[str] = attrs.field(default=frozenset(), converter=_frozen)
    addresses: frozenset[str] = attrs.field(default=frozenset(), converter=_frozen)

    def __or__(self, other: ServerNames) -> ServerNames:
        return ServerNames(self.hosts | other.hosts, self.addresses | other.addresses)

    def covers(self, other: ServerNames) -> bool:
        """Whether all of the other's names are among these."""
        return other.hosts <= self.hosts and other.addresses <= self.addresses


def service_names(service: str, namespace: str) -> ServerNames:
    """The host names of a Service, as an API server uses them."""
    short = f"{service}.{namespace}.svc"
    return ServerNames({short, f"{short}.cluster.local"})


def host_names(hosts: Iterable[str]) -> ServerNames:
    """Host names and addresses, separately."""
    names, addresses = set(), set()
    for host in hosts:
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            names.add(host)
    return ServerNames(names, addresses)


@attrs.frozen
class CertificateVerdict:
    """The result of checking certificates.

    Attributes:
        problem: why they cannot be used at all, or empty.
        names: what the server certificate says it is called.
        server_ends: when the server certificate ends, in seconds since the epoch.
        authority_ends: when the present authority ends.
    """

    problem: str = ""
    names: ServerNames = ServerNames()
    server_ends: float = 0.0
    authority_ends: float = 0.0


def judge(certificates: Certificates) -> CertificateVerdict:
    """Check certificates by a handshake between a strict client and a server that uses them."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.check_hostname = False  # the names are compared by the caller
    try:
        load(server, certificates)
        client.load_verify_locations(cadata=certificates.ca_cert.decode("ascii"))
        peer = _handshake(client, server)
    except (ssl.SSLError, OSError, ValueError) as error:
        return CertificateVerdict(problem=getattr(error, "verify_message", "") or str(error))
    first = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    first.load_verify_locations(cadata=_first(certificates.ca_cert).decode("ascii"))
    own = first.get_ca_certs()
    pairs = peer.get("subjectAltName", ())
    return CertificateVerdict(
        names=ServerNames(
            {value for kind, value in pairs if kind == "DNS"},
            {str(ipaddress.ip_address(value)) for kind, value in pairs if kind == "IP Address"},
        ),
        server_ends=ssl.cert_time_to_seconds(str(peer["notAfter"])),
        authority_ends=ssl.cert_time_to_seconds(str(own[0]["notAfter"])) if own else 0.0,
    )


def renewed(
    present: Certificates | None, names: ServerNames, now: float, *, organisation: str = "kueuelib"
) -> Certificates:
    """Certificates that are good for these names for a while: the present ones, or better ones.

    A new server certificate keeps the authority, so clients need no update. A new authority is
    trusted together with the one it replaces, so that no client is locked out meanwhile.

    Args:
        present: what there is.
        names: what the server must be called; names it already has are kept.
        now: seconds since the epoch.
        organisation: of the subjects.
    """
    if present is None:
        return _all_new(names, now, organisation)
    judgement = judge(present)
    if judgement.problem:
        return _all_new(names, now, organisation)
    if judgement.authority_ends - now < RENEW_BEFORE:
        made = _all_new(judgement.names | names, now, organisation)
        return attrs.evolve(made, ca_cert=made.ca_cert + _first(present.ca_cert))
    if judgement.server_ends - now < RENEW_BEFORE or not judgement.names.covers(names):
        cert, key = _new_server(
            _first(present.ca_cert), present.ca_key, judgement.names | names, now, organisation
        )
        return attrs.evolve(present, tls_cert=cert, tls_key=key)
    return present


def replacing(made: Certificates, before: Certificates) -> Certificates:
    """Certificates that are used from now on, with the authority of those before trusted, too."""
    authority = _first(before.ca_cert)
    if authority in made.ca_cert:
        return made
    return attrs.evolve(made, ca_cert=_first(made.ca_cert) + authority)


def load(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Load these into a server's context, for new connections; open ones are not touched.

    Raises:
        ssl.SSLError: certificate and key do not fit.
        OSError: no temporary file can be written.
    """
    show_certificate(context, certificates.tls_key + b"\n" + certificates.tls_cert)


def server_context(
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, suites: Sequence[str] = ()
) -> ssl.SSLContext:
    """The context of a server, still without certificate.

    Args:
        minimum: the oldest version that is spoken.
        suites: those of TLS 1.2, as OpenSSL names them; empty: OpenSSL's defaults.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum
    if suites:
        context.set_ciphers(":".join(suites))
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> Mapping[str, Any]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server),
    )
    waiting = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            break
    return ends[1].getpeercert() or {}


def _first(bundle: bytes) -> bytes:
    end = b"-----END CERTIFICATE-----"
    return bundle.partition(end)[0] + end + b"\n"


def _all_new(names: ServerNames, now: float, organisation: str) -> Certificates:
    ca_cert, ca_key = new_authority(f"{organisation}-ca", (organisation,), now, AUTHORITY_LIFE)
    tls_cert, tls_key = _new_server(ca_cert, ca_key, names, now, organisation)
    return Certificates(ca_cert, ca_key, tls_cert, tls_key)


def _new_server(
    ca_cert: bytes, ca_key: bytes, names: ServerNames, now: float, organisation: str
) -> tuple[bytes, bytes]:
    hosts = (*sorted(names.hosts), *sorted(names.addresses))
    name = f"{organisation}-webhook"
    return issue((ca_cert, ca_key), name, (organisation,), now, SERVER_LIFE, hosts)
