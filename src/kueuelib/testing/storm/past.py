"""Lists from the past, as a lagging replica of the server would answer them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import orjson

from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage.table import Compacted
from kueuelib.testing.storm.exchange import Call

_PLAIN = frozenset({"resourceVersion", "resourceVersionMatch", "limit", "timeoutSeconds"})


def past_list(
    service: ApiService, revisions: Sequence[tuple[float, int]], call: Call, moment: float
) -> bytes | None:
    """The body of a list at a past moment.

    Only for calls that allow any version, or any not older than a given one, of all objects of a
    kind, in the stored API version. None for all others, and if the past is no longer known.
    """
    query = parse_qs(call.query)
    (least,) = query.get("resourceVersion", [""])
    if call.verb != "list" or not least.isdecimal() or not query.keys() <= _PLAIN:
        return None
    plural, _, group = call.resource.partition(".")
    kind = service.registry.by_plural(group, plural)
    if kind is None:
        return None
    index = bisect_right(revisions, (moment, 2**62))
    if not index:
        return None
    revision = max(revisions[index - 1][1], int(least))
    if revision > revisions[-1][1]:
        return None
    table = service.storage.table(kind.table)
    version = call.path.split("/")[3 if group else 2]
    try:
        past = table.as_of(revision)
    except Compacted:
        return None
    present = {entry.key: entry for entry in table.entries(call.namespace)}
    for key, entry in past.items():
        if call.namespace and key.namespace != call.namespace:
            continue
        if entry is None:
            present.pop(key, None)
        else:
            present[key] = entry
    if any(entry.version != version for entry in present.values()):
        return None
    body: dict[str, Any] = {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version(version),
        "metadata": {"resourceVersion": str(revision)},
        "items": [orjson.Fragment(present[key].raw) for key in sorted(present)],
    }
    return orjson.dumps(body)
