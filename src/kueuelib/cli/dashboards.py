"""`kueuelib dashboards`."""

from __future__ import annotations

import sys
from pathlib import Path

from kueuelib.app.dashboards import dashboard_text
from kueuelib.errors import ConfigError


def run(output: Path | None) -> int:
    """Prints the dashboard, or writes it to a file.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = dashboard_text()
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        output.write_text(text)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a file that can be written") from error
    return 0
