"""Attacks a server with seeded hostile requests: `python -m tests.conformance.hostile --help`."""

from __future__ import annotations

import argparse
import asyncio

from .attack import TARGETS, attacked


def main() -> None:
    """Prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    print(asyncio.run(attacked(given.target, given.seed, given.count)))


if __name__ == "__main__":
    main()
