"""`kueuelib manager`."""

from __future__ import annotations

from pathlib import Path

import anyio

from kueuelib.app.configuration import load_configuration
from kueuelib.app.wiring import run_manager
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("console", "json")


def run(
    kubeconfig: Path | None,
    config: Path | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Runs the manager until SIGTERM or SIGINT; the exit code.

    Raises:
        ConfigError: what was given cannot work.
    """
    for option, value, known in (
        ("--log-format", log_format, FORMATS),
        ("--log-level", log_level, LEVELS),
    ):
        if value not in known:
            raise ConfigError(option, f"{value!r} is unknown", f"use {' or '.join(known)}")
    logs.configure(log_format, log_level)
    configuration = load_configuration(config)
    source = str(config) if config else "default configuration"
    anyio.run(run_manager, configuration, source, kubeconfig, server_timeout)
    return 0
