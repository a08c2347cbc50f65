"""The command line: `syntax` defines the commands, and each command is one module.

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """The entry point of `kueuelib` and of `python -m kueuelib`.

    Exit codes: 0 done, 1 it failed while running, 2 the arguments or files are not valid.
    """
    _write_anything(sys.stdout)
    _write_anything(sys.stderr)
    try:
        _main()
    except KeyboardInterrupt:
        sys.exit(130)


def _write_anything(stream: object) -> None:
    """Makes a stream accept every character: in UTF-8, or as an escape on another terminal."""
    if isinstance(stream, io.TextIOWrapper):
        encoding = stream.encoding if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _main() -> None:
    gc.disable()  # what is imported stays: 40 searches for garbage would take 4 ms
    import click

    from kueuelib.cli.syntax import app
    from kueuelib.errors import KueuelibError

    gc.freeze()
    gc.enable()
    if len(sys.argv) == 1:
        print(app.get_help(click.Context(app, info_name="kueuelib")), file=sys.stderr)  # noqa: T201 - a command line
        sys.exit(2)
    try:
        code = app(prog_name="kueuelib", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        from kueuelib.cli.mistakes import mistake

        print(mistake(error, app, sys.argv[1:]), file=sys.stderr)  # noqa: T201 - the same
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except (KueuelibError, ExceptionGroup) as error:
        from kueuelib.runtime.failures import reported

        sys.exit(reported(error, "kueuelib"))
    except OSError as error:
        if error.errno not in _FULL:
            raise
        print(f"kueuelib: the output cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201 - the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered has no place either
        sys.exit(1)
    sys.exit(code)
