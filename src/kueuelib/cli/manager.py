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
from kueuelib.app.program_context import Assemble
from kueuelib.app.wiring import assemble_manager, run_manager
from kueuelib.runtime import logs
from kueuelib.runtime.entry import run_program

if TYPE_CHECKING:
    from kueuelib.recording.writer import RecordingOptions


@attrs.frozen(kw_only=True)
class ManagerOptions:
    """The options of both commands.

    Attributes:
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the configuration file.
        log_format: of its log.
        log_level: the lowest level that is logged.
        server_timeout: seconds to wait for the API server at the start.
        file: where to record input and decisions; None for nowhere.
        record_size: mebibytes after which another file begins.
        record_files: how many files are kept.
        hash_names: whether names are replaced.
        print_config: whether to print the configuration only.
    """

    kubeconfig: Path | None
    config: Path | None
    log_format: str
    log_level: str
    server_timeout: float
    file: Path | None
    record_size: float
    record_files: int
    hash_names: bool
    print_config: bool = False

    @property
    def source(self) -> str:
        """What to call the configuration in errors."""
        return str(self.config) if self.config else "default configuration"

    def recording(self, file: Path, *, decides: bool) -> RecordingOptions:
        """How to record to a file; `decides` is False if only watches are recorded."""
        from kueuelib.app.recording import recorded_configuration
        from kueuelib.recording.writer import MANAGER, MEBI, WATCHES, RecordingOptions

        content, origin = recorded_configuration(self.config), MANAGER if decides else WATCHES
        size = int(self.record_size * MEBI)
        return RecordingOptions(file, content, origin, size, self.record_files, self.hash_names)


def run(options: ManagerOptions) -> int:
    """Runs the manager until SIGTERM or SIGINT, or prints its configuration; returns the exit code.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    configuration = load_configuration(options.config)
    if options.print_config:
        sys.stdout.write(to_yaml(as_content(configuration)))
        return 0
    logs.configure(options.log_format, options.log_level)
    recording = None if options.file is None else options.recording(options.file, decides=True)
    assemble: Assemble = partial(assemble_manager, recording=recording, file=options.config)
    run_program(
        run_manager,
        configuration,
        options.source,
        options.kubeconfig,
        options.server_timeout,
        assemble,
    )
    return 0


def record(options: ManagerOptions) -> int:
    """Records from watches until SIGTERM or SIGINT; returns the exit code. See `run`."""
    from kueuelib.app.recording import assemble_recorder, recorder_configuration

    assert options.file is not None, "an argument of the command"
    logs.configure(options.log_format, options.log_level)
    configuration = recorder_configuration(load_configuration(options.config))
    recording = options.recording(options.file, decides=False)
    assemble = partial(assemble_recorder, recording=recording)
    program = partial(run_manager, assemble=assemble, serves=False)
    run_program(program, configuration, options.source, options.kubeconfig, options.server_timeout)
    return 0
