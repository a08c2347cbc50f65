"""Keeps certificates, the administrator's token and the port of a server, besides its objects."""

from __future__ import annotations

import secrets

import attrs
import orjson

from kueuelib.embedded import tls
from kueuelib.embedded.storage.folder import DataFolder

MARGIN_DAYS = 30
"""Certificates that expire sooner are renewed."""


@attrs.frozen
class Kept:
    """Credentials, and the token that goes with them."""

    credentials: tls.Credentials
    token: str


def credentials(
    folder: DataFolder, now: float, hosts: tuple[str, ...], user: str, group: str
) -> Kept:
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
        young = now < saved["created"] + (tls.VALID_DAYS - MARGIN_DAYS) * tls.DAY
        if young and now >= saved["created"] and saved["hosts"] == list(hosts):
            pems = {name: text.encode() for name, text in saved["pems"].items()}
            return Kept(tls.Credentials(**pems), saved["token"])
    made = tls.credentials(now, hosts, user, group)
    kept = Kept(made, secrets.token_urlsafe(32))
    facts = {
        "created": now,
        "hosts": hosts,
        "token": kept.token,
        "pems": {name: value.decode() for name, value in attrs.asdict(made).items()},
    }
    folder.note(credentials=orjson.dumps(facts))
    return kept


def port(folder: DataFolder) -> int:
    """The port of the last time; 0 if there was none."""
    return int(folder.fact("port") or b"0")


def note_port(folder: DataFolder, number: int) -> None:
    """Remembers the port."""
    folder.note(port=str(number).encode())
