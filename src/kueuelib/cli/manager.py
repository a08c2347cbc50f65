"""`kueuelib manager`."""

from __future__ import annotations

from pathlib import Path

from kueuelib.app.configuration import load_configuration
from kueuelib.app.wiring import run_manager
from kueuelib.runtime import logs
from kueuelib.runtime.entry import run_program


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
    logs.configure(log_format, log_level)
    configuration = load_configuration(config)
    source = str(config) if config else "default configuration"
    run_program(run_manager, configuration, source, kubeconfig, server_timeout)
    return 0
