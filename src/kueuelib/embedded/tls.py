"""Certificates for one server on loopback: a CA, a serving certificate, a client certificate."""

from __future__ import annotations

import ssl

import attrs

from kueuelib.runtime.authority import issue, new_authority, show_certificate

DAY = 86_400
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


class Authority:
    """A certificate authority that lives as long as the process.

    Attributes:
        pem: its certificate.
    """

    def __init__(self, now: float, name: str = "kueuelib-ca") -> None:
        self._now = now
        self.pem, self._key = new_authority(name, (), now, VALID_DAYS * DAY)

    def issue(
        self, common: str, organizations: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> tuple[bytes, bytes]:
        """A certificate and its key as PEM, for a server when `hosts` are given, else a client."""
        own = self.pem, self._key
        return issue(own, common, organizations, self._now, VALID_DAYS * DAY, hosts)


def credentials(now: float, hosts: tuple[str, ...], user: str, group: str) -> Credentials:
    """Everything that one server and its administrator need; `now` in seconds since the epoch."""
    authority = Authority(now)
    server, server_key = authority.issue("kueuelib-apiserver", hosts=hosts)
    client, client_key = authority.issue(user, (group,))
    return Credentials(authority.pem, server, server_key, client, client_key)
