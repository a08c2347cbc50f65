"""How a reflector lists and watches, and who takes part in an election: limits and durations."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.meta import ObjectKey

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


RETRY_MARGIN = 1.2
"""The renew deadline has to exceed the retry period by this factor."""


@attrs.frozen
class ElectionOptions:
    """The identity of a candidate, and the durations of the election in seconds.

    Attributes:
        lease: namespace and name of the Lease.
        identity: of this process; used in one election at a time.
        lease_duration: how long others respect a Lease that is not renewed.
        renew_deadline: how long a leader that cannot renew its Lease continues.
        retry_period: how often a leader renews it.
        release_on_cancel: whether a leader that ends frees its Lease.
        labels: additional labels of the Lease.
        annotations: additional annotations of the Lease.

    Raises:
        ValueError: unless `lease_duration > renew_deadline > retry_period * 1.2 > 0`.
    """

    lease: ObjectKey
    identity: str
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = False
    labels: Mapping[str, str] = attrs.field(factory=dict)
    annotations: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if not self.identity:
            raise ValueError("the identity must not be empty")
        if not self.lease_duration > self.renew_deadline:
            raise ValueError("the lease duration must exceed the renew deadline")
        if not self.renew_deadline > self.retry_period * RETRY_MARGIN > 0:
            raise ValueError(
                f"the renew deadline must exceed {RETRY_MARGIN} positive retry periods"
            )

    @property
    def request_timeout(self) -> float:
        """Seconds after which one call is given up."""
        return max(1.0, self.renew_deadline / 2)
