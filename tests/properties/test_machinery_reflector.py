"""A reflector against a server with a history: compaction, lost streams, refusals, lies.

Laws: whatever happened, once the server is well the store becomes what the server holds; a handler
that only sees deltas agrees with the store at every moment; each object's states are seen in order;
requests never come in a hot loop.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey, Resource, key_of
from kueuelib.errors import Forbidden, Gone, ServerError, ServerTimeout, TransportError, api_error
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.machinery.reflector import ReflectorCore
from kueuelib.machinery.reflector_protocol import (
    Apply,
    List,
    Listed,
    ListFailed,
    MarkSynced,
    Received,
    Replace,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
)
from kueuelib.machinery.replica import INITIAL_EVENTS_END
from kueuelib.machinery.store import DeltaKind, Store, same_version

THINGS = Resource("g", "v1", "things", "Thing", namespaced=True)


def thing(name, version):
    meta = {"namespace": "n", "name": name, "resourceVersion": str(version), "uid": name}
    return {"apiVersion": "g/v1", "kind": "Thing", "metadata": meta}


class Server:
    """An append-only history with a compaction point."""

    def __init__(self, cached, knows_streaming):
        self.version = 10
        self.compacted = 10
        self.objects = {}
        self.log = []
        self.tokens = {}
        self.cached = cached  # answers RV 0 and RV N whole, from a watch cache
        self.knows_streaming = knows_streaming

    def write(self, name):
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = thing(name, self.version)
        self.log.append((self.version, WatchEvent(kind, self.objects[name])))

    def delete(self, name):
        if name in self.objects:
            self.version += 1
            del self.objects[name]
            self.log.append((self.version, WatchEvent("DELETED", thing(name, self.version))))

    def compact(self):
        self.compacted = self.version
        self.tokens.clear()

    def page(self, command):
        whole = self.cached and command.resource_version and not command.continue_token
        if command.continue_token:
            if command.continue_token not in self.tokens:
                return ListFailed(Gone("the continue token is too old"))
            items, version = self.tokens.pop(command.continue_token)
        else:
            wanted = int(command.resource_version or 0)
            if wanted > self.version:
                return ListFailed(ServerTimeout("Too large resource version: x"))
            if wanted and wanted < self.compacted and not self.cached:
                return ListFailed(Gone("too old resource version"))
            items, version = list(self.objects.values()), self.version
        if command.limit and not whole and len(items) > command.limit:
            token = f"t{len(self.tokens)}-{version}"
            self.tokens[token] = (items[command.limit :], version)
            return Listed(items[: command.limit], str(version), token)
        return Listed(items, str(version))


ONE_FAULT = st.sampled_from(
    [
        "refuse", "refuse", "forbid", "500", "gone", "malformed", "429",
        "end", "break", "error-500", "error-410", "error-429", "wrong-kind", "bookmark",
    ]
)  # fmt: skip
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abcdef")),
        st.tuples(st.just("delete"), st.sampled_from("abcdef")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("serve"), st.integers(1, 4)),
        st.tuples(st.just("serve"), st.integers(1, 8)),
        st.tuples(st.just("fault"), ONE_FAULT),
        st.tuples(st.just("write_then_fault"), st.sampled_from("abcdef"), ONE_FAULT),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.5, 3.0, 200.0])),
    ),
    min_size=5,
    max_size=80,
)


class Shell:
    """Drives a core as its docstring says, on a virtual clock."""

    def __init__(self, server, core):
        self.server, self.core = server, core
        self.now = 1000.0
        self.store = Store()
        self.believed = {}
        self.seen = {}
        self.synced = 0
        self.requests = []
        self.activity = None
        self.wakes = 0.0
        self.position = None  # version up to which the open stream has delivered
        self.initial = None
        self.run(core.start(self.now, 0.5))

    def feed(self, event):
        self.run(self.core.step(event, self.now, 0.5))

    def run(self, commands):
        for number, command in enumerate(commands):
            match command:
                case Apply(changes):
                    self.tell(self.store.apply(changes))
                case Replace(items, initial):
                    assert initial == (self.synced == 0)
                    self.tell(self.store.replace(items, initial=initial, same=same_version))
                case MarkSynced():
                    self.synced += 1
                case List() | Watch() | Sleep():
                    assert number == len(commands) - 1
                    self.begin(command)
        assert self.synced <= 1

    def tell(self, deltas):
        for delta in deltas:
            assert self.believed.get(delta.key) == delta.old
            if delta.kind is DeltaKind.DELETED:
                del self.believed[delta.key]
                continue
            self.believed[delta.key] = delta.new
            version = int(delta.new["metadata"]["resourceVersion"])
            assert version > self.seen.get(delta.key, 0), "a state was told twice or out of order"
            self.seen[delta.key] = version

    def begin(self, command):
        self.activity, self.position, self.initial = command, None, None
        if isinstance(command, Sleep):
            assert command.seconds > 0
            self.wakes = self.now + command.seconds
        elif not (isinstance(command, List) and command.continue_token):
            self.requests.append(self.now)

    def fault(self, kind):
        if isinstance(self.activity, Sleep):
            return
        errors = {
            "refuse": TransportError("https://x", "refused"),
            "forbid": Forbidden("no"),
            "500": ServerError("oops"),
            "gone": Gone("too old"),
            "429": api_error(429, {"kind": "Status", "details": {"retryAfterSeconds": 2}}),
            "break": TransportError("https://x", "reset"),
        }
        if isinstance(self.activity, List):
            if kind == "malformed":
                self.feed(Listed([{"kind": "Thing"}], "99"))
            elif kind in errors:
                self.feed(ListFailed(errors[kind]))
        elif self.position is None:
            if kind in errors:
                self.feed(StreamEnded(errors[kind]))
        elif kind == "end":
            self.feed(StreamEnded())
        elif kind in ("break", "refuse"):
            self.feed(StreamEnded(errors["break"]))
        elif kind == "malformed":
            self.feed(Received([WatchEvent("ADDED", {"kind": "Thing"})]))
        elif kind == "wrong-kind":
            self.feed(Received([WatchEvent("ADDED", {"kind": "Other", "metadata": {"name": "z"}})]))
        elif kind == "bookmark":
            self.deliver([WatchEvent("BOOKMARK", thing("", self.position))])
        elif kind.startswith("error-"):
            status = {"kind": "Status", "code": int(kind[6:])}
            news = [] if self.initial else self.news()
            self.feed(Received([*news, WatchEvent("ERROR", status)]))

    def write_then_fault(self, name, kind):
        """A fault that comes together with news."""
        self.serve(9)
        self.server.write(name)
        self.fault(kind)

    def serve(self, count):
        """Let the server do its next `count` honest steps; returns whether anything was left."""
        for _ in range(count):
            if isinstance(self.activity, Sleep):
                return False
            if isinstance(self.activity, List):
                self.feed(self.server.page(self.activity))
            elif self.position is None:
                self.open()
            elif not self.stream():
                return False
        return True

    def open(self):
        command, server = self.activity, self.server
        version = int(command.resource_version or 0)
        if command.initial_events and not server.knows_streaming:
            self.feed(StreamEnded(api_error(422, {"kind": "Status", "reason": "Invalid"})))
        elif version and version < server.compacted:
            self.feed(StreamEnded(Gone("too old resource version")))
        else:
            self.position = version
            if command.initial_events or not version:
                self.initial = list(server.objects.values())
                self.position = server.version
            self.feed(WatchOpened())

    def stream(self):
        if self.initial:
            return self.deliver([WatchEvent("ADDED", self.initial.pop())])
        if self.initial is not None and self.activity.initial_events:
            self.initial = None
            mark = thing("", self.position)
            mark["metadata"]["annotations"] = {INITIAL_EVENTS_END: "true"}
            return self.deliver([WatchEvent("BOOKMARK", mark)])
        if self.position < self.server.compacted:
            status = {"kind": "Status", "code": 410, "reason": "Expired"}
            self.feed(Received([WatchEvent("ERROR", status)]))
            return True
        news = self.news()
        return self.deliver(news) if news else False

    def news(self):
        found = [(at, event) for at, event in self.server.log if at > self.position][:2]
        self.position = found[-1][0] if found else self.position
        return [event for _, event in found]

    def deliver(self, events):
        self.feed(Received(events))
        return True

    def wait(self, seconds):
        self.now += seconds
        due = self.wakes if isinstance(self.activity, Sleep) else self.core.deadline
        if due is not None and self.now >= due:
            self.feed(Tick())

    def settle(self):
        """The server is well from now on: serve until nothing is left to do."""
        for _ in range(300):
            if isinstance(self.activity, Sleep):
                self.now = max(self.now, self.wakes)
                self.feed(Tick())
            elif not self.serve(1):
                return
        pytest.fail("the reflector never came to rest")


@settings(max_examples=120, deadline=None)
@given(
    ACTIONS,
    st.booleans(),
    st.booleans(),
    st.builds(ReflectorOptions, st.sampled_from([None, 2]), st.booleans(), st.booleans()),
)
def test_the_store_always_converges_to_the_truth(actions, cached, streaming, options):
    server = Server(cached, streaming)
    shell = Shell(server, ReflectorCore(THINGS, options=options))
    for name, *arguments in actions:
        target = server if name in ("write", "delete", "compact") else shell
        getattr(target, name)(*arguments)
        assert shell.believed == {key: shell.store.get(key) for key in shell.store}
    shell.settle()
    assert shell.synced == 1
    truth = {key_of(obj): obj for obj in server.objects.values()}
    assert {key: shell.store.get(key) for key in shell.store} == truth
    server.write("z")
    shell.settle()
    assert ObjectKey("n", "z") in shell.store


@settings(max_examples=60, deadline=None)
@given(st.lists(ONE_FAULT, min_size=1, max_size=4), st.booleans(), st.integers(0, 2), st.booleans())
def test_a_sick_server_is_never_asked_in_a_hot_loop(faults, streaming, steps, busy):
    server = Server(cached=True, knows_streaming=True)
    shell = Shell(server, ReflectorCore(THINGS, options=ReflectorOptions(stream_lists=streaming)))
    for number in range(200):
        shell.serve(steps)
        shell.fault(faults[number % len(faults)])
        if busy:
            server.write("a")
        if isinstance(shell.activity, Sleep):
            shell.now = shell.wakes
            shell.feed(Tick())
    for first, fifth in zip(shell.requests, shell.requests[5:], strict=False):
        assert fifth - first >= 0.8
