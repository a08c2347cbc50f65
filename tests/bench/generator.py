"""A cheap load generator: `python generator.py SPEC`, a process of its own.

A client that costs more than the server measures itself. So requests are encoded before the clock
starts, a few keep-alive connections send the next one when the answer to the last has come, never
before, and of an answer only the status and the length are read. One call costs some 40
microseconds of processor time over TLS.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Connection = socket.socket
SECONDS = 300.0
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"


def encoded(method: str, path: str, body: bytes, type_: str, token: str) -> bytes:
    """One HTTP/1.1 request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {type_}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def connected(host: str, port: int, ca: str) -> Connection:
    """A connection that does not block; over TLS when there is a CA to trust."""
    plain = socket.create_connection((host, port), timeout=SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection: Connection = plain
    if ca:
        context = ssl.create_default_context(cadata=ca)
        connection = context.wrap_socket(plain, server_hostname=host)
    connection.setblocking(False)
    return connection


class Caller:
    """One connection with at most one request under way."""

    def __init__(self, connection: Connection, requests: Iterator[bytes]) -> None:
        self.connection = connection
        self._requests = requests
        self._left = b""
        self._wanted = 0
        self._got = bytearray()

    def send(self) -> bool:
        """Sends the next request; false when there is none."""
        request = next(self._requests, None)
        if request is None:
            return False
        self._left, self._wanted = request, 0
        self._got.clear()
        self._flush()
        return True

    def _flush(self) -> None:
        while self._left:
            try:
                sent = self.connection.send(self._left)
            except (BlockingIOError, ssl.SSLWantWriteError):
                time.sleep(0)  # a few KB to a loopback socket that is otherwise empty
                continue
            self._left = self._left[sent:]

    def receive(self) -> int:
        """Reads; the status of the answer when it is complete, else 0."""
        while True:
            try:
                data = self.connection.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError):
                return 0
            if not data:
                raise ConnectionError("the server has closed a connection")
            self._got += data
            if not self._wanted:
                self._wanted = _expected(self._got)
            if self._wanted and len(self._got) >= self._wanted:
                return int(self._got[9:12])


def _expected(got: bytearray) -> int:
    """The length of an answer, 0 while its head is incomplete."""
    end = got.find(_END)
    if end < 0:
        return 0
    head = bytes(got[:end]).lower()
    at = head.index(_LENGTH) + len(_LENGTH)
    return end + len(_END) + int(head[at:].split(b"\r\n", 1)[0])


def run(spec: dict[str, Any], requests: list[bytes]) -> dict[str, Any]:
    """Sends everything; what it took, and how many answers had which status."""
    todo = iter(requests)
    selector = selectors.DefaultSelector()
    callers = [
        Caller(connected(spec["host"], spec["port"], spec["ca"]), todo)
        for _ in range(spec["connections"])
    ]
    statuses: dict[str, int] = {}
    started, cpu = time.perf_counter(), time.process_time()
    active = 0
    for caller in callers:
        if caller.send():
            selector.register(caller.connection, selectors.EVENT_READ, caller)
            active += 1
    deadline = started + SECONDS
    while active:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not answered within {SECONDS} s: {statuses}")
        for key, _ in selector.select(1.0):
            status = key.data.receive()
            if not status:
                continue
            text = str(status)
            statuses[text] = statuses.get(text, 0) + 1
            if not key.data.send():
                selector.unregister(key.fileobj)
                active -= 1
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    for caller in callers:
        caller.connection.close()
    return {"seconds": seconds, "cpu": cpu, "statuses": statuses}


def main(path: Path) -> None:
    """Reads the plan, carries it out, prints what came of it as JSON."""
    spec = json.loads(path.read_text())
    token = spec["token"]
    requests = [
        encoded(method, target, body.encode(), type_, token)
        for method, target, body, type_ in spec["requests"]
    ]
    sys.stdout.write(json.dumps(run(spec, requests)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
