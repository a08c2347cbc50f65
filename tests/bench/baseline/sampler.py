"""Runs `kueuelib` and samples where its processor time goes: `sampler.py FILE ARGS...`.

A timer of processor time interrupts the main thread, so idle time is not seen. At the end the file
gets JSON: how often each stack was seen, as `module:function` from the outermost to the innermost
frame, joined by `;` (the format of flame graph tools, with `count` as the value).
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

SECONDS = 0.005
_STACKS: Counter[tuple[tuple[str, str], ...]] = Counter()


def _sample(_number: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append((code.co_filename, code.co_qualname))
        frame = frame.f_back
    _STACKS[tuple(stack)] += 1


def _module(path: str) -> str:
    """The dotted name of a file, without what its folder is called on this machine."""
    name = path.removesuffix(".py")
    for root in ("/src/", "/site-packages/", f"/python{sys.version_info[0]}"):
        _, separator, rest = name.rpartition(root)
        if separator:
            return rest.partition("/")[2] if root.startswith("/python") else rest
    return name


def main() -> None:
    """Runs the command and writes the samples."""
    path = Path(sys.argv[1])
    sys.argv = ["kueuelib", *sys.argv[2:]]
    from kueuelib.cli import main as command

    signal.signal(signal.SIGPROF, _sample)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    try:
        command()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        folded: Counter[str] = Counter()
        for stack, count in _STACKS.items():
            names = [f"{_module(file).replace('/', '.')}:{name}" for file, name in reversed(stack)]
            folded[";".join(names)] += count
        path.write_text(json.dumps(folded))


if __name__ == "__main__":
    main()
