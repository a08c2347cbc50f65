"""What blocks an installation that reaches the manager in another way than the previous one.

A webhook is reached by a URL or by a Service. An apply adds the second one if another manager owns
the first, and an object with both is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj

_WAYS = frozenset({"url", "service"})


def in_the_way(stored: Obj, wanted: Obj) -> Obj:
    """A merge patch that takes the other way to a webhook out of an object; or empty.

    Args:
        stored: a raw CRD, or a webhook configuration.
        wanted: what is to be applied to it.
    """
    if wanted["kind"] == CRDS.kind:
        return _of_definition(stored, wanted)
    ours = {hook["name"]: hook["clientConfig"] for hook in wanted.get("webhooks") or ()}
    hooks = [
        {**hook, "clientConfig": ours[hook["name"]]}
        if hook["name"] in ours and _others(hook["clientConfig"], ours[hook["name"]])
        else hook
        for hook in stored.get("webhooks") or ()
    ]
    if hooks == (stored.get("webhooks") or []):
        return {}
    version = stored["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "webhooks": hooks}


def _of_definition(stored: Obj, wanted: Obj) -> Obj:
    theirs, ours = _conversion(stored), _conversion(wanted)
    if theirs and not ours:
        return {"spec": {"conversion": {**wanted["spec"]["conversion"], "webhook": None}}}
    other = _others(theirs, ours)
    if not other or not ours:
        return {}
    config = {**dict.fromkeys(other), **ours}
    return {"spec": {"conversion": {"webhook": {"clientConfig": config}}}}


def _others(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> frozenset[str]:
    return (_WAYS & theirs.keys()) - ours.keys()


def _conversion(crd: Obj) -> Obj:
    webhook = (crd["spec"].get("conversion") or {}).get("webhook") or {}
    config: Obj = webhook.get("clientConfig") or {}
    return config
