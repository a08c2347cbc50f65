"""List and watch as a pure state machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, Gone, TooManyRequests, TransportError, api_error
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.options import PAGE_SIZE, ReflectorOptions
from kueuelib.machinery.reflector_protocol import (
    Apply,
    Command,
    Input,
    List,
    Listed,
    ListFailed,
    MalformedStream,
    Received,
    ReportError,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
    is_internal,
    is_too_large_version,
    is_unsupported,
    key_in,
    misfit,
)
from kueuelib.machinery.replica import NO_VERSION, Replica, number_of
from kueuelib.machinery.store import StoreUpdate

SHORT_WATCH = 1.0
"""Seconds; a stream that ends sooner is suspicious."""
CONFIRMATION = 60.0
"""Seconds; a stream that lasts longer should have delivered everything that was learned before
it began. Otherwise a consistent list decides. For example, an answer may stem from a history
that the server has lost since.
"""


class _State(Enum):
    NEW = "new"
    LISTING = "listing"
    OPENING = "opening"
    WATCHING = "watching"
    SLEEPING = "sleeping"


class ReflectorCore:
    """Decides how to keep a store equal to what a server holds.

    How a shell drives it:

    ```
    commands = core.start(now, chance)
    loop:
        for each command in order:
            Apply, Replace   -> do it on the store, call the handlers with the deltas
            MarkSynced       -> set the "synced" event
            ReportError      -> log, count
            List, Watch, Sleep (an *activity*: at most one per step, always the last command)
                             -> close the stream of an earlier Watch if one is open, then begin
        wait for what the activity gives, and feed it:
            List   -> Listed(page) | ListFailed(error)
            Watch  -> WatchOpened() once the status is 200, then Received(events) again and again,
                      then StreamEnded(error or None); a refused watch: StreamEnded(error) only
            Sleep  -> Tick() when the seconds are over
        commands = core.step(input, now, chance)
    ```

    A step without an activity means: continue with the present one. While a stream is open and
    `deadline` is not None, feed `Tick()` when that time comes. `now` is monotonic, in seconds;
    `chance` a random number in [0, 1). To stop, cancel the shell; the core needs no clean-up.

    Answers to the process's own requests enter through `learn` and `lose`, at any time. An older
    state never replaces a newer one. The shell carries out all changes of a step before it awaits
    anything, so that no answer comes between a decision and the store.

    Guarantees: every object passes `transform` once; a listed or watched state is never skipped for
    good: each way to lose events leads to a list; at most a handful of requests without a pause;
    a list that is older than the state known when it was requested is discarded. The next list is
    then a consistent read and always accepted: a server that lost its history, or was restored from
    an older copy, is behind. `HistoryLost` is reported before the list is taken in.

    Raises (from `step`): ValueError for an input that does not fit the present activity (a bug of
    the shell); whatever `transform` raises.

    """

    def __init__(
        self,
        resource: Resource | None = None,
        *,
        transform: Callable[[Obj], Obj] | None = None,
        options: ReflectorOptions | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Build one.

        Args:
            resource: what is watched: listed objects without a kind, and metadata, get it, watched
                objects of another kind are reported and dropped. None: any kind.
            transform: applied to each object before it is kept; may change it, or replace it.
            options: see `ReflectorOptions`.
            backoff: the pauses shared by lists and watches.
        """
        self._resource = resource
        self._replica = Replica(resource, transform)
        self._options = options or ReflectorOptions()
        self._backoff = backoff or Backoff()
        self._state = _State.NEW
        self._streaming = self._options.stream_lists  # cleared for good when unsupported
        self._plain_once = False  # the next fill is a list, whatever _streaming says
        self._paginated = False  # the server answered RV 0 in pages: it has no watch cache
        self._asked = List("")  # the page under way
        self._pages: dict[ObjectKey, Obj] = {}
        self._opened_at = 0.0
        self._delivered = 0
        self._warned = False
        self._internal_since: float | None = None
        self._after_sleep: Callable[[float], list[Command]] = lambda chance: self._fill(
            "start", chance
        )

    @property
    def version(self) -> str:
        """The last resource version that may be passed back; empty before the first list."""
        return self._replica.version

    @property
    def synced(self) -> bool:
        """Whether `MarkSynced` was returned."""
        return self._replica.synced

    @property
    def ahead(self) -> int:
        """The number of keys whose known state is newer than the watch."""
        return len(self._replica.ahead)

    @property
    def deadline(self) -> float | None:
        """While a stream is open: when it needs a `Tick`, or None."""
        if self._state is not _State.WATCHING or self._replica.filling is None:
            return None
        options = self._options
        wait = options.initial_events_timeout if self._warned else options.initial_events_warning
        return self._opened_at + wait

    def start(self, now: float, chance: float) -> tuple[Command, ...]:  # noqa: ARG002 - as step
        """The first commands.

        Raises:
            ValueError: it was started before.
        """
        if self._state is not _State.NEW:
            raise ValueError("a reflector can be started only once")
        return tuple(self._fill("start", chance))

    def step(self, event: Input, now: float, chance: float) -> tuple[Command, ...]:
        """Take what happened; return what to do."""
        match event:
            case Received(events) if self._state is _State.WATCHING:
                commands = self._received(events, now, chance)
            case Listed() if self._state is _State.LISTING:
                commands = self._listed(event, now, chance)
            case ListFailed(error) if self._state is _State.LISTING:
                commands = self._list_failed(error, now, chance)
            case WatchOpened() if self._state is _State.OPENING:
                self._state, self._opened_at = _State.WATCHING, now
                commands = []
            case StreamEnded(error) if self._state in (_State.OPENING, _State.WATCHING):
                if error is not None:
                    commands = self._stream_failed(error, now, chance)
                else:
                    commands = self._stream_ended(now, chance)
            case Tick() if self._state is _State.SLEEPING:
                commands = self._after_sleep(chance)
            case Tick() if self._state in (_State.OPENING, _State.WATCHING):
                commands = self._ticked(now, chance)
            case _:
                raise ValueError(f"{type(event).__name__} does not fit while {self._state.value}")
        return tuple(commands)

    # ---- answers to other requests --------------------------------------------------------------

    def learn(
        self, answer: Obj, *, included: bool = True, shared: bool = False
    ) -> tuple[StoreUpdate[Obj], ...]:
        """Return the changes to the store that an answer causes; none if it is not newer.

        Args:
            answer: the object as the server returned it from a write or a read.
            included: whether it belongs to what is listed and watched. If not, it is dropped.
            shared: whether the answer itself may be kept and transformed; otherwise a copy is.
        """
        return self._replica.learn(answer, included=included, shared=shared)

    def lose(self, held: Obj) -> tuple[StoreUpdate[Obj], ...]:
        """Return the changes to the store for an object that no longer exists."""
        return self._replica.lose(held)

    # ---- filling the store ----------------------------------------------------------------------

    def _fill(self, cause: str, chance: float) -> list[Command]:
        self._pages = {}
        replica = self._replica
        replica.request()
        if self._streaming and not self._plain_once:
            return self._watch(replica.requested, cause, chance, initial_events=True)
        if not replica.requested and not replica.unavailable and self._options.any_start:
            replica.requested = "0"
        limit = self._options.page_size or PAGE_SIZE
        at_version = replica.requested not in NO_VERSION
        if self._options.page_size is None and not self._paginated and at_version:
            limit = 0  # the watch cache answers at once; a limit would make it a storage read
        return self._list(List(replica.requested, limit, cause=cause))

    def _list(self, command: List) -> list[Command]:
        self._state = _State.LISTING
        self._asked = command
        return [command]

    def _listed(self, page: Listed, now: float, chance: float) -> list[Command]:
        if self._asked.cause == "look":
            return self._looked(page.resource_version, chance)
        try:
            for obj in page.items:
                self._pages[key_in(obj)] = self._replica.kept(obj)
        except MalformedStream as error:
            return self._list_failed(error, now, chance)
        if page.continue_token:
            self._paginated = self._paginated or self._asked.resource_version == "0"
            return self._list(List("", self._asked.limit, page.continue_token, cause="page"))
        filled, self._pages = self._pages, {}
        if self._replica.is_outdated(page.resource_version):
            return self._refused_outdated("list", page.resource_version, chance)
        self._plain_once = False
        commands = self._replica.filled(filled, page.resource_version)
        return commands + self._watch(self.version, "listed", chance)

    def _refused_outdated(self, during: str, version: str, chance: float) -> list[Command]:
        self._replica.unavailable = True
        least = self._replica.least
        problem = MalformedStream(f"asked for version {least} or newer, got {version}")
        return [ReportError(problem, during), *self._fill("outdated", chance)]

    def _list_failed(self, error: Exception, now: float, chance: float) -> list[Command]:
        self._pages = {}
        report: list[Command] = [ReportError(error, "list")]
        if self._asked.cause == "look" and isinstance(error, TransportError | TooManyRequests):
            return report + self._pause(error, now, chance, self._look)
        expired = isinstance(error, Gone)
        if expired and self._asked.continue_token:
            return report + self._list(List(self._replica.requested, cause="expired"))
        if (expired or is_too_large_version(error)) and not self._replica.unavailable:
            self._replica.unavailable = True
            return report + self._fill("expired", chance)
        return report + self._refill_later("error", error, now, chance)

    # ---- watching -------------------------------------------------------------------------------

    def _watch(
        self, version: str, cause: str, chance: float, *, initial_events: bool = False
    ) -> list[Command]:
        self._state = _State.OPENING
        self._replica.open(version, initial_events=initial_events)
        self._delivered = 0
        self._warned = False
        timeout = int(self._options.watch_timeout * (1.0 + chance))
        return [Watch(version, timeout, initial_events, cause)]

    def _received(self, events: Sequence[WatchEvent], now: float, chance: float) -> list[Command]:
        commands: list[Command] = []
        changes: list[StoreUpdate[Obj]] = []
        for event in events:
            if event.type == "ERROR":
                error = api_error(event.object.get("code") or 500, event.object)
                return _flushed(commands, changes) + self._stream_failed(error, now, chance)
            self._delivered += 1
            try:
                if event.type == "BOOKMARK":
                    outdated = self._replica.outdated_end(event.object)
                    if outdated:
                        refused = self._refused_outdated("watch", outdated, chance)
                        return _flushed(commands, changes) + refused
                    commands += self._replica.bookmark(event.object)
                    continue
                problem = misfit(event, self._resource)
                if problem is not None:
                    commands.append(ReportError(problem, "watch"))
                    continue
                change = self._replica.change(event)
            except MalformedStream as error:
                return _flushed(commands, changes) + self._stream_failed(error, now, chance)
            if change is not None:
                changes.append(change)
        self._replica.pass_by()
        return _flushed(commands, changes)

    def _ticked(self, now: float, chance: float) -> list[Command]:
        due = self.deadline
        if due is None or now < due:
            return []
        waited = MalformedStream(
            f"no end of the initial events after {now - self._opened_at:.0f} s"
        )
        report: list[Command] = [ReportError(waited, "watch")]
        if not self._warned:
            self._warned = True
            return report
        self._streaming = False
        return report + self._fill("unsupported", chance)

    # ---- the end of a stream --------------------------------------------------------------------

    def _stream_ended(self, now: float, chance: float) -> list[Command]:
        lasted = now - self._opened_at if self._state is _State.WATCHING else 0.0
        self._internal_since = None
        if lasted < SHORT_WATCH and not self._delivered:
            short = MalformedStream(f"a watch ended after {lasted:.3f} s without an event")
            later = self._refill_later("short-watch", short, now, chance)
            return [ReportError(short, "watch"), *later]
        if self._replica.filling is not None or not self._replica.trusted:
            # Such a stream starts with all that exists, unordered: a deletion in the gap to the
            # next one would stay unseen.
            return self._refill_later("untrusted", None, now, chance)
        if lasted >= CONFIRMATION and self._replica.ahead.unchanged(self._replica.before):
            self._replica.unavailable = True
            return self._refill_later("unconfirmed", None, now, chance)
        if lasted < SHORT_WATCH:
            return self._sleep(SHORT_WATCH - lasted, self._rewatch("ended"))
        return self._watch(self.version, "ended", chance)

    def _stream_failed(self, error: Exception, now: float, chance: float) -> list[Command]:
        opening = self._state is _State.OPENING
        report: list[Command] = [ReportError(error, "watch")]
        if not is_internal(error):
            self._internal_since = None
        if self._replica.filling is not None:
            return report + self._filling_failed(error, now, chance)
        if not self._replica.trusted:
            return report + self._refill_later("untrusted", error, now, chance)
        if isinstance(error, TransportError) and opening:
            return report + self._pause(error, now, chance, self._look)
        if isinstance(error, TooManyRequests):
            return report + self._pause(error, now, chance, self._rewatch("retry"))
        if is_internal(error) and not opening and self._internal_may_pass(now):
            return report + self._pause(error, now, chance, self._rewatch("retry"))
        self._internal_since = None
        cause = "expired" if isinstance(error, Gone) else "error"
        return report + self._refill_later(cause, error, now, chance)

    def _filling_failed(self, error: Exception, now: float, chance: float) -> list[Command]:
        if is_unsupported(error):
            self._streaming = False
            return self._fill("unsupported", chance)
        if isinstance(error, Gone) or is_too_large_version(error):
            if not self._replica.unavailable:
                self._replica.unavailable = True
                return self._fill("expired", chance)
        elif not isinstance(error, TransportError | TooManyRequests):
            self._plain_once = True
        return self._refill_later("error", error, now, chance)

    def _internal_may_pass(self, now: float) -> bool:
        if self._internal_since is None:
            self._internal_since = now
        return now - self._internal_since <= self._options.internal_error_retry

    def _look(self, chance: float) -> list[Command]:  # noqa: ARG002 - as `_fill`
        """Ask where a server that was away stands: a watch from its future would stay silent."""
        return self._list(List("", 1, cause="look"))

    def _looked(self, version: str, chance: float) -> list[Command]:
        if 0 < number_of(version) < number_of(self.version):
            self._replica.unavailable = True
            return self._fill("outdated", chance)
        return self._watch(self.version, "retry", chance)

    # ---- pauses ---------------------------------------------------------------------------------

    def _refill_later(
        self, cause: str, error: Exception | None, now: float, chance: float
    ) -> list[Command]:
        return self._pause(error, now, chance, lambda then: self._fill(cause, then))

    def _rewatch(self, cause: str) -> Callable[[float], list[Command]]:
        return lambda chance: self._watch(self.version, cause, chance)

    def _pause(
        self,
        error: Exception | None,
        now: float,
        chance: float,
        then: Callable[[float], list[Command]],
    ) -> list[Command]:
        asked = error.retry_after if isinstance(error, ApiError) else None
        return self._sleep(max(self._backoff.next(now, chance), asked or 0.0), then)

    def _sleep(self, seconds: float, then: Callable[[float], list[Command]]) -> list[Command]:
        self._state = _State.SLEEPING
        self._replica.filling = None
        self._after_sleep = then
        return [Sleep(seconds)]


def _flushed(commands: list[Command], changes: list[StoreUpdate[Obj]]) -> list[Command]:
    return [*commands, Apply(tuple(changes))] if changes else commands
