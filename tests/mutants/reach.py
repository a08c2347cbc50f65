"""Plays storms of sources with probes, and says which places each reaches, as one line of JSON.

    python tests/mutants/reach.py MOST

The answer maps the number of a probe to the storms that reach it, as `RUN/SEED`; the start of the
cluster, which all share, is `boot`. At most `MOST` storms are played, of all profiles by turns.
"""

from __future__ import annotations

import builtins
import json
import mmap
import sys
from collections import defaultdict

PLACES = 4096
"""The most probes; their page is shared with the copies of this process that play storms."""
_SEEN = mmap.mmap(-1, PLACES)


def _probe(number: int) -> None:
    _SEEN[number] = 1


builtins._probe = _probe  # type: ignore[attr-defined]  # before anything of the package is imported

from hunt import boot, by_turns, play, worlds  # noqa: E402


def main(most: int) -> None:
    """Plays storms and prints what they reached."""
    reached: dict[int, list[str]] = defaultdict(list)

    def note(where: str) -> None:
        for number in (number for number in range(PLACES) if _SEEN[number]):
            reached[number].append(where)
        _SEEN[:] = bytes(PLACES)

    with worlds() as processes:
        for run in {process: run for run, process in processes.items()}.values():
            if wrong := processes[run].submit(boot, run).result():
                raise RuntimeError(f"{run} does not start: {wrong}")
        note("boot")
        for run, seed in by_turns()[:most]:
            processes[run].submit(play, run, seed).result()
            note(f"{run}/{seed}")
    sys.stdout.write(json.dumps(reached) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
