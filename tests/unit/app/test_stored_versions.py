"""Page sizes while the API server cannot convert some objects."""

from __future__ import annotations

import pytest

from kueuelib.app.stored_versions import PageSizes
from kueuelib.machinery.options import PAGE_SIZE


def requests(stored: str) -> tuple[int, int]:
    """How many pages are read and fail; a page of objects in two versions fails.

    Args:
        stored: the version of each object, a letter each.
    """
    sizes, place, read, failed = PageSizes(), 0, 0, 0
    while place < len(stored):
        page = stored[place : place + sizes.size]
        if len(set(page)) == 1:
            place, read = place + len(page), read + 1
            sizes.read()
        else:
            failed += 1
            sizes.failed()
    return read, failed


def test_pages_of_one_version_are_as_large_as_any() -> None:
    assert requests("n" * 5 * PAGE_SIZE) == (5, 0)


@pytest.mark.parametrize(
    ("stored", "most_read", "most_failed"),
    [
        ("on" * 500, 1000, 12),
        ("n" * 5000 + "o" + "n" * 5000, 1000, 12),
        ("o" * 5100 + "n" * 5000, 1000, 12),
        (("o" * 30 + "n" * 70) * 20, 2000, 15),
    ],
    ids=["by turns", "an old one", "old ones first", "runs"],
)
def test_few_pages_fail_in_a_mixture(stored: str, most_read: int, most_failed: int) -> None:
    read, failed = requests(stored)
    assert read <= most_read
    assert 0 < failed <= most_failed
