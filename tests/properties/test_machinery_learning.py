"""Answers, watches and lists tell of the same objects, late and out of order.

Laws, after every step: a handler that only sees deltas agrees with the store; no delta goes back;
what was learned is never forgotten for something older. Once the server is well the store becomes
what the server holds.
"""

from __future__ import annotations

import copy

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import Resource, key_of
from kueuelib.errors import Gone, ServerTimeout, TransportError
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.machinery.reflector import ReflectorCore
from kueuelib.machinery.reflector_protocol import (
    Apply,
    List,
    Listed,
    ListFailed,
    Received,
    Replace,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
)
from kueuelib.machinery.replica import INITIAL_EVENTS_END, version_number
from kueuelib.machinery.store import Store, same_version

THINGS = Resource("g", "v1", "things", "Thing", namespaced=True)
NAMES = st.sampled_from("abc")


def is_in(obj):
    return obj["metadata"]["labels"]["in"] == "yes"


class Server:
    """Every state it ever had; replicas may lag behind. Labels decide who sees an object."""

    def __init__(self, start=1000):
        self.start, self.version, self.compacted, self.born = start, start, start, 0
        self.objects = {}
        self.past = {start: {}}
        self.log = []
        self.left = {}  # by name: the newest version at which it was deleted, or left the scope
        self.answers, self.corpses = [], []
        self.strayed = set()  # UIDs that left the scope alive

    def write(self, name, *, included=True):
        before = self.objects.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.start}-{self.born}"
        self.born += before is None
        self.version += 1
        labels = {"in": "yes" if included else "no"}
        meta = {"namespace": "n", "name": name, "uid": uid, "labels": labels}
        meta["resourceVersion"] = str(self.version)
        obj = {"apiVersion": "g/v1", "kind": "Thing", "metadata": meta}
        self.objects[name] = obj
        self.answers.append(obj)
        self.note(name, before, obj)

    def delete(self, name):
        before = self.objects.pop(name, None)
        if before is not None:
            self.version += 1
            self.corpses.append(before)
            self.note(name, before, None)

    def note(self, name, before, after):
        self.past[self.version] = dict(self.objects)
        was, now = before is not None and is_in(before), after is not None and is_in(after)
        if was and not now:
            self.left[name] = self.version
            if after is not None:
                self.strayed.add(after["metadata"]["uid"])
        if was or now:
            kind = "DELETED" if not now else "MODIFIED" if was else "ADDED"
            obj = copy.deepcopy(after or before)
            obj["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, WatchEvent(kind, obj)))

    def seen_at(self, version):
        return [copy.deepcopy(obj) for obj in self.past[version].values() if is_in(obj)]

    def compact(self):
        self.compacted = self.version

    def lose_history(self):
        """Everything is restored from a copy, and counts anew; no old answer is on its way."""
        objects = list(self.objects.values())
        self.__init__(1)
        for obj in objects:
            self.write(obj["metadata"]["name"], included=is_in(obj))
        self.answers, self.corpses = [], []
        self.compact()


class Shell:
    """Drives a core as its docstring says."""

    def __init__(self, server, *, streaming):
        self.server = server
        options = ReflectorOptions(None, streaming, any_start=True)
        self.core = ReflectorCore(THINGS, options=options)
        self.now = 1000.0
        self.store = Store()
        self.forget()
        self.run(self.core.start(self.now, 0.5))

    def forget(self):
        self.believed = {key: self.store.get(key) for key in self.store}
        self.seen, self.learned, self.gone = {}, {}, set()

    def feed(self, event):
        self.run(self.core.step(event, self.now, 0.5))

    def run(self, commands):
        for command in commands:
            match command:
                case Apply(changes):
                    self.tell(self.store.apply(changes, same=same_version))
                case Replace(items, _, kept):
                    if self.core.version and int(self.core.version) < max([0, *self.seen.values()]):
                        self.forget()  # only a server that lost its history gets that far
                    self.tell(self.store.replace(items, same=same_version, kept=kept))
                case List() | Watch() | Sleep():
                    self.begin(command)

    def tell(self, deltas):
        for delta in deltas:
            assert self.believed.get(delta.key) == delta.old
            if delta.new is None:
                del self.believed[delta.key]
                continue
            self.believed[delta.key] = delta.new
            version, uid = version_number(delta.new), delta.new["metadata"]["uid"]
            if uid not in self.gone or uid not in self.server.strayed:
                assert uid not in self.gone, "an object rose from the dead"
                assert version > self.seen.get(delta.key, 0), "a state goes back, or comes twice"
            self.seen[delta.key] = version

    def begin(self, command):
        self.activity, self.position, self.initial = command, None, None
        self.asked_at = self.server.version
        if isinstance(command, Sleep):
            self.wakes = self.now + command.seconds

    def learn(self, number):
        """An answer arrives, maybe long after the write, maybe twice."""
        if not self.server.answers:
            return
        answer = self.server.answers[number % len(self.server.answers)]
        before = copy.deepcopy(answer)
        synced = self.core.synced
        changes = self.core.learn(answer, included=is_in(answer))
        assert answer == before, "the caller keeps the answer"
        self.tell(self.store.apply(changes, same=same_version))
        if synced:
            key = key_of(answer)
            self.learned[key] = max(self.learned.get(key, 0), version_number(answer))

    def lose(self, number):
        """A request was answered with 404."""
        if not self.server.corpses:
            return
        corpse = self.server.corpses[number % len(self.server.corpses)]
        held = self.store.get(key_of(corpse))
        if held is not None and held["metadata"]["uid"] == corpse["metadata"]["uid"]:
            self.gone.add(corpse["metadata"]["uid"])
            self.tell(self.store.apply(self.core.lose(held)))

    def relist(self):
        """The stream breaks, and a new list is on its way."""
        self.settle()
        self.fault(ERRORS["break"])
        while isinstance(self.activity, Sleep):
            self.serve(0)
        if isinstance(self.activity, Watch) and self.activity.initial_events:
            self.open(0)

    def check(self):
        assert self.believed == {key: self.store.get(key) for key in self.store}
        for key, version in self.learned.items():
            held = self.store.get(key)
            if held is not None:
                assert version_number(held) >= version
            elif key.name in self.server.objects and is_in(self.server.objects[key.name]):
                assert self.server.left.get(key.name, 0) > version or version not in {
                    version_number(each) for each in self.server.answers if is_in(each)
                }, "what was learned is not there, and never went"

    def serve(self, lag):
        """The server does its next step, `lag` versions behind where it may; whether it could."""
        if isinstance(self.activity, Sleep):
            self.now = max(self.now, self.wakes)
            self.feed(Tick())
        elif isinstance(self.activity, List):
            self.answer_list(lag)
        elif self.position is None:
            self.open(lag)
        else:
            return self.stream()
        return True

    def answer_list(self, lag, *, lies=False):
        server, wanted = self.server, self.activity.resource_version
        least = self.asked_at if not wanted else 0 if lies else int(wanted)
        if least > server.version:
            self.feed(ListFailed(ServerTimeout("Too large resource version: x")))
            return
        version = max(server.version - lag, least, min(server.past))
        self.feed(Listed(server.seen_at(version), str(version)))

    def open(self, lag):
        server, command = self.server, self.activity
        wanted = command.resource_version
        if wanted and (int(wanted) > server.version or int(wanted) < server.compacted):
            self.feed(StreamEnded(Gone("too old resource version")))
            return
        self.position = int(wanted or self.asked_at)
        if command.initial_events:
            self.position = max(self.position, server.version - lag)
            self.initial = server.seen_at(self.position)
        self.feed(WatchOpened())

    def stream(self):
        if self.initial is not None:
            news = [WatchEvent("ADDED", obj) for obj in self.initial]
            mark = {"namespace": "n", "name": "", "resourceVersion": str(self.position)}
            mark["annotations"] = {INITIAL_EVENTS_END: "true"}
            self.initial = None
            self.feed(Received([*news, WatchEvent("BOOKMARK", {"metadata": mark})]))
            return True
        if self.position < self.server.compacted or self.position > self.server.version:
            status = {"kind": "Status", "code": 410, "reason": "Expired"}
            self.feed(Received([WatchEvent("ERROR", status)]))
            return True
        found = [pair for pair in self.server.log if pair[0] > self.position][:2]
        if not found:
            return False
        self.position = found[-1][0]
        self.feed(Received([copy.deepcopy(event) for _, event in found]))
        return True

    def bookmark(self):
        if self.position is not None and self.initial is None and not self.stream():
            self.position = self.server.version
            mark = {"namespace": "n", "name": "", "resourceVersion": str(self.position)}
            self.feed(Received([WatchEvent("BOOKMARK", {"metadata": mark})]))

    def lie(self, lag):
        """A replica that does not know what it is asked for answers all the same."""
        if isinstance(self.activity, List):
            self.answer_list(lag, lies=True)

    def fault(self, error):
        if isinstance(self.activity, List) and error is not None:
            self.feed(ListFailed(error))
        elif isinstance(self.activity, Watch):
            self.feed(StreamEnded(error))

    def settle(self):
        for _ in range(200):
            if not self.serve(0):
                return
        raise AssertionError("the reflector never came to rest")


NUMBERS = st.integers(0, 30)
LAGS = st.integers(0, 6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.sampled_from([True, True, True, False])),
        st.tuples(st.just("write_and_learn"), NAMES, st.sampled_from([True, True, False])),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("delete_and_lose"), NAMES),
        st.tuples(st.just("learn"), NUMBERS),
        st.tuples(st.just("lose"), NUMBERS),
        st.tuples(st.just("serve"), LAGS),
        st.tuples(st.just("relist")),
        st.tuples(st.just("lie"), LAGS),
        st.tuples(st.just("bookmark")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("fault"), st.sampled_from(["end", "break", "gone"])),
    ),
    min_size=10,
    max_size=60,
)
ERRORS = {"end": None, "break": TransportError("https://x", "reset"), "gone": Gone("too old")}


def act(server, shell, name, *given_):
    match name:
        case "write":
            server.write(given_[0], included=given_[1])
        case "write_and_learn":
            server.write(given_[0], included=given_[1])
            shell.learn(-1)
        case "delete":
            server.delete(given_[0])
        case "delete_and_lose":
            server.delete(given_[0])
            shell.lose(-1)
        case "compact":
            server.compact()
        case "fault":
            shell.fault(ERRORS[given_[0]])
        case _:
            getattr(shell, name)(*given_)
    shell.check()


def converges(server, shell):
    shell.settle()
    shell.check()
    truth = {key_of(obj): obj for obj in server.objects.values() if is_in(obj)}
    assert {key: shell.store.get(key) for key in shell.store} == truth
    shell.bookmark()
    assert shell.core.ahead == 0


STRAYED_BEFORE_ITS_END = [
    *(("write", "a", included) for included in (True, True, False, True, True, True)),
    *[("learn", 4), ("serve", 0), ("delete_and_lose", "a"), ("serve", 0)],
]
"""The watch reports that an object left and returned when its end is known already."""


@settings(max_examples=120, deadline=None)
@example(STRAYED_BEFORE_ITS_END, False, True)
@given(STEPS, st.booleans(), st.booleans())
def test_nothing_older_replaces_anything_newer(steps, streaming, synced):
    server = Server()
    shell = Shell(server, streaming=streaming)
    if synced:
        shell.settle()
    for step in steps:
        act(server, shell, *step)
    converges(server, shell)


@settings(max_examples=100, deadline=None)
@given(STEPS, STEPS, st.booleans())
def test_a_server_that_lost_its_history_is_followed(before, after, streaming):
    server = Server()
    shell = Shell(server, streaming=streaming)
    for step in before:
        act(server, shell, *step)
    server.lose_history()
    shell.fault(ERRORS["break"])
    shell.settle()
    shell.forget()
    converges(server, shell)
    for step in after:
        act(server, shell, *step)
    converges(server, shell)


@settings(max_examples=50, deadline=None)
@given(STEPS, st.booleans())
def test_an_answer_from_a_lost_history_does_not_stay(steps, streaming):
    server = Server()
    shell = Shell(server, streaming=streaming)
    for step in steps:
        act(server, shell, *step)
    late = server.answers[-1:]
    server.lose_history()
    shell.fault(ERRORS["break"])
    shell.settle()
    shell.forget()  # with the history went what was known of the dead: the answer may raise one
    for answer in late:
        shell.tell(shell.store.apply(shell.core.learn(answer, included=is_in(answer))))
    for _ in range(2):
        shell.now += 100.0
        shell.fault(ERRORS["end"])
        shell.settle()
    shell.forget()
    converges(server, shell)
