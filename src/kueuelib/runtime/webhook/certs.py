"""Certificates of a webhook server: made, checked and loaded; nothing is stored or sent here.

A certificate is checked in the way of the API server: by a TLS handshake, in memory.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.runtime.authority import issue, new_authority, show_certificate

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
class Names:
    """What a server is called: host names and addresses.

    Attributes:
        hosts: for example `kueue-webhook-service.kueue-system.svc`.
        addresses: for example `127.0.0.1`.
    """

    hosts: frozenset[str] = attrs.field(default=frozenset(), converter=_frozen)
    addresses: frozenset[str] = attrs.field(default=frozenset(), converter=_frozen)

    def __or__(self, other: Names) -> Names:
        return Names(self.hosts | other.hosts, self.addresses | other.addresses)

    def covers(self, other: Names) -> bool:
        """Whether all of the other's names are among these."""
        return other.hosts <= self.hosts and other.addresses <= self.addresses


def service_names(service: str, namespace: str) -> Names:
    """The host names of a Service, as an API server uses them."""
    short = f"{service}.{namespace}.svc"
    return Names({short, f"{short}.cluster.local"})


def host_names(hosts: Iterable[str]) -> Names:
    """Host names and addresses, separately."""
    names, addresses = set(), set()
    for host in hosts:
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            names.add(host)
    return Names(names, addresses)


@attrs.frozen
class Judgement:
    """The result of checking certificates.

    Attributes:
        problem: why they cannot be used at all, or empty.
        names: what the server certificate says it is called.
        server_ends: when the server certificate ends, in seconds since the epoch.
        authority_ends: when the present authority ends.
    """

    problem: str = ""
    names: Names = Names()
    server_ends: float = 0.0
    authority_ends: float = 0.0


def judge(certificates: Certificates) -> Judgement:
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
        return Judgement(problem=getattr(error, "verify_message", "") or str(error))
    first = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    first.load_verify_locations(cadata=_first(certificates.ca_cert).decode("ascii"))
    own = first.get_ca_certs()
    pairs = peer.get("subjectAltName", ())
    return Judgement(
        names=Names(
            {value for kind, value in pairs if kind == "DNS"},
            {str(ipaddress.ip_address(value)) for kind, value in pairs if kind == "IP Address"},
        ),
        server_ends=ssl.cert_time_to_seconds(str(peer["notAfter"])),
        authority_ends=ssl.cert_time_to_seconds(str(own[0]["notAfter"])) if own else 0.0,
    )


def renewed(
    present: Certificates | None, names: Names, now: float, *, organisation: str = "kueuelib"
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


def _all_new(names: Names, now: float, organisation: str) -> Certificates:
    ca_cert, ca_key = new_authority(f"{organisation}-ca", (organisation,), now, AUTHORITY_LIFE)
    tls_cert, tls_key = _new_server(ca_cert, ca_key, names, now, organisation)
    return Certificates(ca_cert, ca_key, tls_cert, tls_key)


def _new_server(
    ca_cert: bytes, ca_key: bytes, names: Names, now: float, organisation: str
) -> tuple[bytes, bytes]:
    hosts = (*sorted(names.hosts), *sorted(names.addresses))
    name = f"{organisation}-webhook"
    return issue((ca_cert, ca_key), name, (organisation,), now, SERVER_LIFE, hosts)
