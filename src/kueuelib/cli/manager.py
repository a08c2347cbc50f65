"""`kueuelib manager`, and `kueuelib record`, which only records."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    file: Path | None,
    *,
    print_config: bool,
    **kept: Any,
) -> int:
    """Runs the manager until SIGTERM or SIGINT, or prints its configuration; returns the exit code.

    Args:
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the configuration file.
        log_format: of its log.
        log_level: the lowest level that is logged.
        server_timeout: seconds to wait for the API server at the start.
        file: where to record input and decisions; None for nowhere.
        print_config: whether to print the configuration only.
        kept: the options for recordings.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    configuration = load_configuration(config)
    if print_config:
        sys.stdout.write(to_yaml(as_content(configuration)))
        return 0
    logs.configure(log_format, log_level)
    recording = None if file is None else _recording(file, config, decides=True, **kept)
    assemble: Assemble = partial(assemble_manager, recording=recording, file=config)
    run_program(run_manager, configuration, _source(config), kubeconfig, server_timeout, assemble)
    return 0


def record(
    kubeconfig: Path | None,
    config: Path | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
    file: Path,
    **kept: Any,
) -> int:
    """Records from watches until SIGTERM or SIGINT; returns the exit code. See `run`."""
    from kueuelib.app.recording import assemble_recorder, recorder_configuration

    logs.configure(log_format, log_level)
    configuration = recorder_configuration(load_configuration(config))
    recording = _recording(file, config, decides=False, **kept)
    assemble = partial(assemble_recorder, recording=recording)
    program = partial(run_manager, assemble=assemble, serves=False)
    run_program(program, configuration, _source(config), kubeconfig, server_timeout)
    return 0


def _recording(
    file: Path,
    config: Path | None,
    *,
    decides: bool,
    record_size: float,
    record_files: int,
    hash_names: bool,
) -> RecordingOptions:
    from kueuelib.app.recording import recorded_configuration
    from kueuelib.recording.writer import MANAGER, MEBI, WATCHES, RecordingOptions

    content, origin = recorded_configuration(config), MANAGER if decides else WATCHES
    size = int(record_size * MEBI)
    return RecordingOptions(file, content, origin, size, record_files, hash_names)


def _source(config: Path | None) -> str:
    return str(config) if config else "default configuration"
