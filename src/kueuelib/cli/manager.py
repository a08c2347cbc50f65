"""`kueuelib manager`, and `kueuelib record`, which only records."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.configuration_text import as_content
from kueuelib.app.wiring import Assemble, assemble_manager, run_manager
from kueuelib.runtime import logs
from kueuelib.runtime.entry import run_program

if TYPE_CHECKING:
    from kueuelib.recording.writer import RecordingOptions


def run(
    kubeconfig: Path | None,
    config: Path | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
    recording: RecordingOptions | None = None,
    *,
    print_config: bool,
) -> int:
    """Runs the manager until SIGTERM or SIGINT, or prints its configuration; returns the exit code.

    With `recording`, its input and decisions are written to a file.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    configuration = load_configuration(config)
    if print_config:
        sys.stdout.write(to_yaml(as_content(configuration)))
        return 0
    logs.configure(log_format, log_level)
    if recording is not None:
        from kueuelib.app.recording import recorded_configuration

        recording = attrs.evolve(recording, configuration=recorded_configuration(config))
    assemble: Assemble = partial(assemble_manager, recording=recording, file=config)
    run_program(run_manager, configuration, _source(config), kubeconfig, server_timeout, assemble)
    return 0


def record(
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
    from kueuelib.app import recording as parts

    logs.configure(log_format, log_level)
    configuration = parts.recorder_configuration(load_configuration(config))
    chosen = attrs.evolve(recording, configuration=parts.recorded_configuration(config))
    assemble = partial(parts.assemble_recorder, recording=chosen)
    program = partial(run_manager, assemble=assemble, serves=False)
    run_program(program, configuration, _source(config), kubeconfig, server_timeout)
    return 0


def _source(config: Path | None) -> str:
    return str(config) if config else "default configuration"
