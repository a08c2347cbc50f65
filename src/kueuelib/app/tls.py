"""The block `tls` of the configuration: which versions and ciphers the servers accept."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

import attrs

from kueuelib.app.decoding import ConfigurationRefusal

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_TLS13: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""Suites of TLS 1.3, which no server can choose among; they may be listed among others."""
_SUITES: Final = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl_name}"
    for key in ("ECDSA", "RSA")
    for name, openssl_name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""OpenSSL's names of the safe suites of TLS 1.2."""


@attrs.frozen
class Tls:
    """The protocols of the HTTPS servers: webhooks, metrics and the visibility API.

    Attributes:
        min_version: `VersionTLS12` or `VersionTLS13`; empty: TLS 1.2.
        cipher_suites: those of TLS 1.2, by their IANA names; empty: the library's defaults.
    """

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The context of a server, without a certificate yet."""
        from kueuelib.runtime.certificates import server_context

        suites = [_SUITES[name] for name in self.cipher_suites if name not in _TLS13]
        return server_context(_VERSIONS[self.min_version], suites)


def check_tls(tls: Tls) -> Iterator[ConfigurationRefusal]:
    """Refuses versions and suites that are not safe, not known, or without effect."""
    if tls.min_version not in _VERSIONS:
        yield ConfigurationRefusal(
            f"tls.minVersion is {tls.min_version!r}",
            "write VersionTLS12 or VersionTLS13",
        )
    suites = tls.cipher_suites
    for index, name in enumerate(suites):
        if name not in _SUITES and name not in _TLS13:
            yield ConfigurationRefusal(
                f"tls.cipherSuites[{index}]: {name!r} is not a known and safe suite",
                f"use some of {', '.join(_SUITES)}",
            )
    if suites and tls.min_version == "VersionTLS13":
        yield ConfigurationRefusal(
            "tls.cipherSuites has no effect on VersionTLS13", "remove the suites"
        )
    if suites and _TLS13.issuperset(suites):
        yield ConfigurationRefusal(
            "tls.cipherSuites has no suite of TLS 1.2",
            "set tls.minVersion to VersionTLS13 instead",
        )
