"""`kueuelib record`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs

from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.recording import assemble_recorder, recorded_configuration, recorder_configuration
from kueuelib.app.wiring import run_manager
from kueuelib.recording.writer import RecordingOptions
from kueuelib.runtime import logs
from kueuelib.runtime.entry import run_program


def run(
    recording: RecordingOptions,
    kubeconfig: Path | None,
    config: Path | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Records from watches until SIGTERM or SIGINT; returns the exit code.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    logs.configure(log_format, log_level)
    configuration = recorder_configuration(load_configuration(config))
    source = str(config) if config else "default configuration"
    chosen = attrs.evolve(recording, configuration=recorded_configuration(config))
    assemble = partial(assemble_recorder, recording=chosen)
    record = partial(run_manager, assemble=assemble, serves=False)
    run_program(record, configuration, source, kubeconfig, server_timeout)
    return 0
