"""The arguments of the API's verbs, without a transport.

The verbs are those of `kueuelib.embedded.service.ApiService`, which the HTTP face and the simulated
cluster call.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from kueuelib.embedded.admission.plugin import SYSTEM, UserInfo


class Propagation(StrEnum):
    """The handling of a deleted object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class FieldValidation(StrEnum):
    """The handling of unknown and duplicate fields in a request."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@attrs.define
class WriteOptions:
    """The options of a write.

    Attributes:
        caller: the caller.
        dry_run: whether to skip only the storage.
        field_manager: owner of the written fields; empty: taken from the caller's agent.
        field_validation: the handling of unknown fields.
        force: whether an apply patch takes fields from other managers.
        warnings: filled with texts for the client.
        received: texts about duplicate fields and similar problems, found while decoding the body.
    """

    caller: UserInfo = SYSTEM
    dry_run: bool = False
    field_manager: str = ""
    field_validation: FieldValidation = FieldValidation.IGNORE
    force: bool = False
    warnings: list[str] = attrs.field(factory=list)
    received: tuple[str, ...] = ()


@attrs.frozen
class DeleteOptions:
    """The options of a deletion.

    Attributes:
        caller: the caller.
        dry_run: whether to skip only the deletion.
        grace_period: seconds, None for the default of the object.
        propagation: None for the default of the kind.
        accepted: whether a deletion that has only begun is answered with 202.
        uid: the object must have this UID, or the answer is 409.
        resource_version: the object must have this version, or the answer is 409.
        way: how it comes to be deleted: empty for by its name, `collection`, or `eviction`, which
            admission has seen as such.
    """

    caller: UserInfo = SYSTEM
    dry_run: bool = False
    grace_period: int | None = None
    propagation: Propagation | None = None
    accepted: bool = False
    uid: str | None = None
    resource_version: str | None = None
    way: str = ""


@attrs.frozen
class ListOptions:
    """The selection of a list, and how fresh the answer must be.

    Attributes:
        label_selector: as in a URL; empty selects all.
        field_selector: as in a URL; empty selects all.
        resource_version: as in a URL.
        resource_version_match: `Exact`, `NotOlderThan` or empty.
        limit: the maximum number of items in one answer; 0 for all.
        continue_token: from the previous answer.
    """

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""


@attrs.frozen
class WatchOptions:
    """The options of a watch.

    Attributes:
        label_selector: as in a URL.
        field_selector: as in a URL.
        resource_version: events after this one; empty or `0`: the present objects come first.
        resource_version_match: `NotOlderThan` or empty; only with `send_initial_events`.
        continue_token: has no meaning for a watch, which may refuse it.
        timeout: seconds after which the stream ends, None for never.
        bookmarks: whether to send BOOKMARK events.
        send_initial_events: whether the present objects come first, then a BOOKMARK that marks
            their end.
    """

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    continue_token: str = ""
    timeout: float | None = None
    bookmarks: bool = False
    send_initial_events: bool | None = None


ALL = ListOptions()
"""Every object, as fresh as possible."""
DELETE = DeleteOptions()
"""The default options of `delete`."""
FROM_NOW = WatchOptions()
"""The present objects, then every change."""
