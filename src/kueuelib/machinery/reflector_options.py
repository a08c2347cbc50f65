"""How a reflector lists and watches: every limit of an informer."""

from __future__ import annotations

import attrs

PAGE_SIZE = 500
"""Objects per page when a whole list is read."""


@attrs.frozen
class ReflectorOptions:
    """How a reflector lists and watches.

    Attributes:
        page_size: objects per page; None: 500, or no paging if the server's watch cache answers.
        stream_lists: fill the store from a watch (`sendInitialEvents`) instead of a list; falls
            back to lists when the server does not know it.
        any_start: accept a first list from the watch cache of any replica, however stale. By
            default the first list is a consistent read: a new process must not act on a state that
            is older than the writes of its predecessor, nor see deleted objects again.
        watch_timeout: shortest `timeoutSeconds`; the longest is twice that.
        internal_error_retry: seconds during which internal errors of a stream lead to a new
            watch instead of a list.
        initial_events_warning: seconds after which a missing end of the initial events is reported.
        initial_events_timeout: seconds after which a list is used instead.
        batch: most events that are applied to the store in one go.
    """

    page_size: int | None = None
    stream_lists: bool = False
    any_start: bool = False
    watch_timeout: int = 300
    internal_error_retry: float = 30.0
    initial_events_warning: float = 10.0
    initial_events_timeout: float = 30.0
    batch: int = 1000
