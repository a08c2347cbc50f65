"""The command line: one file per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of `kueuelib` and of `python -m kueuelib`.

    Exit codes: 0 done, 1 it went wrong while running, 2 what was given cannot work.
    """
    from kueuelib.cli.root import app
    from kueuelib.errors import ConfigError, KueuelibError

    try:
        app(prog_name="kueuelib")
    except ConfigError as error:
        print(f"kueuelib: {error}", file=sys.stderr)  # noqa: T201 - the command line's voice
        sys.exit(2)
    except KueuelibError as error:
        print(f"kueuelib: {error}", file=sys.stderr)  # noqa: T201 - the command line's voice
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
