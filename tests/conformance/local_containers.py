"""Containers that are processes of this machine, for tests of a kubelet's server."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import anyio

from kueuelib.errors import BadRequest, NotFound


class LocalProcess:
    """A process, as a kubelet's server sees it."""

    def __init__(self, process, *, stdin, tty, owner):
        self.process = process
        self.stdin = process.stdin if stdin else None
        self.stdout = process.stdout
        self.stderr = None if tty else process.stderr
        self.sizes = []
        self._owner = owner

    def resize(self, width, height):
        self.sizes.append((width, height))

    async def wait(self):
        code = await self.process.wait()
        return code if code >= 0 else 128 - code

    async def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        for stream in (self.process.stdin, self.stdout, self.process.stderr):
            await stream.aclose()
        self._owner.open.discard(self)


class LocalContainers:
    """One pod `default/p` with the container `c`, whose process is what each call starts.

    Attributes:
        open: the processes that were not ended.
        followed: how many logs are being followed.
        asked: the options of the logs.
    """

    def __init__(self):
        self.open = set()
        self.followed = 0
        self.asked = []

    def _check(self, namespace, pod, container="c"):
        if (namespace, pod) != ("default", "p"):
            raise NotFound(f'pod "{pod}" does not exist')
        if container == "later":
            raise BadRequest(f'container "{container}" in pod "{pod}" is waiting to start')
        if container != "c":
            raise NotFound(f'container not found ("{container}")')

    async def logs(self, namespace, pod, container, options):
        self._check(namespace, pod, container)
        self.asked.append(options)
        return self._log(options)

    async def _log(self, options):
        self.followed += 1
        try:
            for line in (b"one\n", b"two\n"):
                yield line
            if options.previous:
                raise NotFound("the file is gone")
            number = 0
            while options.follow:
                await anyio.sleep(0.05)
                number += 1
                yield b"line %d\n" % number
        finally:
            self.followed -= 1

    async def exec(self, namespace, pod, container, command, *, stdin, tty):
        self._check(namespace, pod, container)
        process = await anyio.open_process(command, start_new_session=True)
        if not stdin:
            await process.stdin.aclose()
        made = LocalProcess(process, stdin=stdin, tty=tty, owner=self)
        self.open.add(made)
        return made

    async def attach(self, namespace, pod, container, *, stdin, tty):
        command = ["sh", "-c", "echo attached; read line && echo got $line; exit 5"]
        return await self.exec(namespace, pod, container, command, stdin=stdin, tty=tty)

    async def dial(self, namespace, pod, port):
        self._check(namespace, pod)
        return await anyio.connect_tcp("127.0.0.1", port)
