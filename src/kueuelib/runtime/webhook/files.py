"""Certificates that another program makes, as files."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kueuelib.errors import ConfigError
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


class CertificateFiles:
    """Loads `tls.crt` and `tls.key` of a folder, again whenever they change; a `Manager`'s part.

    Args:
        contexts: of the servers.
        folder: where another program writes and renews the files.
        period: seconds between two looks.
        clock: time.
    """

    def __init__(
        self,
        contexts: Iterable[ssl.SSLContext],
        folder: str | Path,
        *,
        period: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
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
        self._clock = clock
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
            await self._clock.sleep(self._period)
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
