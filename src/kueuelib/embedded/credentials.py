"""Certificates for one server on loopback, and what a data folder keeps of them."""

from __future__ import annotations

import secrets
import ssl

import attrs
import orjson

from kueuelib.embedded.storage.folder import DataFolder
from kueuelib.runtime.certificates import (
    KUBELET_CLIENT,
    KUBELET_CLIENT_GROUPS,
    issue,
    new_authority,
    show_certificate,
)

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
        kubelet_certificate: names this server to the kubelets of nodes.
        kubelet_key: its private key.
    """

    ca: bytes
    server_certificate: bytes
    server_key: bytes
    client_certificate: bytes
    client_key: bytes
    kubelet_certificate: bytes
    kubelet_key: bytes

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
    dialling, dialling_key = authority.issue(KUBELET_CLIENT, KUBELET_CLIENT_GROUPS[:1])
    return Credentials(
        authority.pem, server, server_key, client, client_key, dialling, dialling_key
    )


# Keeps certificates, the administrator's token and the port of a server, besides its objects.

MARGIN_DAYS = 30
"""Certificates that expire sooner are renewed."""


@attrs.frozen
class PersistedCredentials:
    """Credentials, and the token that goes with them."""

    credentials: Credentials
    token: str


def persisted_credentials(
    folder: DataFolder, now: float, hosts: tuple[str, ...], user: str, group: str
) -> PersistedCredentials:
    """The credentials of the last time, or new ones if they are too old or for other addresses.

    Args:
        folder: stores them.
        now: seconds since the epoch.
        hosts: the addresses of the server.
        user: the administrator.
        group: of the administrator.

    Raises:
        ConfigError: the folder cannot be read or written.
    """
    raw = folder.fact("credentials")
    if raw is not None:
        saved = orjson.loads(raw)
        young = now < saved["created"] + (VALID_DAYS - MARGIN_DAYS) * DAY
        whole = saved["pems"].keys() == attrs.fields_dict(Credentials).keys()
        if young and now >= saved["created"] and saved["hosts"] == list(hosts) and whole:
            pems = {name: text.encode() for name, text in saved["pems"].items()}
            return PersistedCredentials(Credentials(**pems), saved["token"])
    made = credentials(now, hosts, user, group)
    kept = PersistedCredentials(made, secrets.token_urlsafe(32))
    facts = {
        "created": now,
        "hosts": hosts,
        "token": kept.token,
        "pems": {name: value.decode() for name, value in attrs.asdict(made).items()},
    }
    folder.note(credentials=orjson.dumps(facts))
    return kept


def persisted_port(folder: DataFolder) -> int:
    """The port of the last time; 0 if there was none."""
    return int(folder.fact("port") or b"0")


def persist_port(folder: DataFolder, number: int) -> None:
    """Remembers the port."""
    folder.note(port=str(number).encode())
