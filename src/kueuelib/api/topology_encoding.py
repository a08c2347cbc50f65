"""Both wire forms of topology assignments (KEP-2724): domains in `v1beta1`, slices in `v1beta2`.

A slice stores what its domains have in common once: a value, a prefix, a suffix, a number of pods.
Either function returns None for what has no counterpart in the other form, so that it is kept as it
is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final

import orjson

from kueuelib.api.meta import Obj
from kueuelib.api.topology import DOMAIN_LIMIT, SLICE_LIMIT

HOST: Final = "kubernetes.io/hostname"
"""The level of single nodes."""
_MOST_DOMAINS: Final = 3 * DOMAIN_LIMIT
"""More are not written out one by one: a few bytes may stand for any number."""

Domain = tuple[tuple[str, ...], int]
"""The values of a domain, one per level, and its number of pods."""


def domains_of(levels: Any, slices: Any) -> list[Obj] | None:
    """The raw domains of raw slices, in their order.

    Args:
        levels: of the assignment.
        slices: as in `v1beta2`.
    """
    if not _are(str, levels) or not isinstance(slices, list):
        return None
    domains: list[Obj] = []
    for one in slices:
        columns = _columns(one, len(levels))
        if columns is None or len(domains) + one["domainCount"] > _MOST_DOMAINS:
            return None
        rows = zip(*(_repeated(column, one["domainCount"]) for column in columns), strict=True)
        domains += ({"values": list(values), "count": count} for *values, count in rows)
    return domains


def slices_of(levels: Any, domains: Any) -> list[Obj] | None:
    """The shortest raw slices of raw domains.

    Args:
        levels: of the assignment.
        domains: as in `v1beta1`.
    """
    if not _are(str, levels) or not isinstance(domains, list):
        return None
    if not all(_is_domain(one, len(levels)) for one in domains):
        return None
    plain = [(tuple(one["values"]), one["count"]) for one in domains]
    by_prefix = [_slice(run) for run in _runs(plain, is_host=levels[-1:] == [HOST])]
    if len(by_prefix) < 2 or len(plain) > DOMAIN_LIMIT:
        return by_prefix
    whole = [_slice(plain)]
    return min(by_prefix, whole, key=lambda form: len(orjson.dumps(form)))


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(one) is kind for one in values)


def _is_domain(one: Any, levels: int) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() == {"values", "count"}
        and type(one["count"]) is int
        and _are(str, one["values"])
        and len(one["values"]) == levels
    )


# ---- from slices


def _repeated(column: Any, count: int) -> Any:
    return column if isinstance(column, list) else [column] * count


def _columns(one: Any, levels: int) -> list[Any] | None:
    """The values of a slice level by level, then its counts: a list each, or what all share."""
    if not isinstance(one, dict) or one.keys() != {"domainCount", "valuesPerLevel", "podCounts"}:
        return None
    number, values = one["domainCount"], one["valuesPerLevel"]
    if type(number) is not int or not isinstance(values, list) or len(values) != levels:
        return None
    columns = [*(_column(each, str) for each in values), _column(one["podCounts"], int)]
    good = (isinstance(each, str | int) or (each and len(each) == number) for each in columns)
    return columns if all(good) else None


def _column(given: Any, kind: type) -> Any:
    """A list of values of one kind, or the value that all share; None for anything else."""
    if not isinstance(given, dict) or len(given) != 1:
        return None
    ((form, values),) = given.items()
    if form == "universal":
        return values if type(values) is kind else None
    if form != "individual":
        return None
    if kind is str and isinstance(values, dict) and {"roots"} <= values.keys() <= _PARTS:
        prefix, suffix, roots = values.get("prefix", ""), values.get("suffix", ""), values["roots"]
        if _are(str, [prefix, suffix]) and _are(str, roots):
            return [f"{prefix}{root}{suffix}" for root in roots]
        return None
    return values if kind is int and _are(int, values) else None


_PARTS: Final = frozenset(("prefix", "suffix", "roots"))


# ---- into slices


def _slice(domains: Sequence[Domain]) -> Obj:
    rows, counts = zip(*domains, strict=True)
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_values(column) for column in zip(*rows, strict=True)],
        "podCounts": {"universal": counts[0]} if len({*counts}) == 1 else {"individual": [*counts]},
    }


def _values(column: Sequence[str]) -> Obj:
    if len({*column}) == 1:
        return {"universal": column[0]}
    prefix = _beginning(column)
    suffix = _beginning([value[::-1] for value in column])[::-1]
    shortest = min(map(len, column))
    prefix = prefix[: shortest - len(suffix)]
    roots = [value[len(prefix) : len(value) - len(suffix)] for value in column]
    parts = {"prefix": prefix, "suffix": suffix}
    return {"individual": {**{key: text for key, text in parts.items() if text}, "roots": roots}}


def _beginning(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (one, other) in pairs if one != other), len(first))]


def _runs(domains: Sequence[Domain], *, is_host: bool) -> list[Sequence[Domain]]:
    """Neighbours whose hosts have a prefix in common, as long as a slice may be."""
    prefixes = [_prefixes(values[-1]) for values, _ in domains] if is_host else []
    shared = Counter(prefix for each in prefixes for prefix in each)
    for depth in range(max(map(len, prefixes), default=0), 0, -1):
        keys = [_longest(each[:depth], shared) for each in prefixes]
        runs = [*_chunks(domains, keys)]
        if len(runs) <= SLICE_LIMIT:
            return runs
    return [*_chunks(domains, [""] * len(domains))]


def _prefixes(host: str) -> list[str]:
    """What a host name may share with others, up to each `-` but its last character."""
    return [host[: at + 1] for at, character in enumerate(host[:-1]) if character == "-"]


def _longest(prefixes: Sequence[str], shared: Mapping[str, int]) -> str:
    return next((prefix for prefix in reversed(prefixes) if shared[prefix] > 1), "")


def _chunks(domains: Sequence[Domain], keys: Sequence[str]) -> Iterator[Sequence[Domain]]:
    rest = iter(domains)
    for _, run in groupby(keys):
        left = sum(1 for _ in run)
        while left:
            chunk = [*islice(rest, min(left, DOMAIN_LIMIT))]
            left -= len(chunk)
            yield chunk
