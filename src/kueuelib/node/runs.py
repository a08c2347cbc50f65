"""One run of a container: its process, sandbox, limits and log, and attached clients."""

from __future__ import annotations

import itertools
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
import attrs
import orjson
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import MemoryObjectReceiveStream

from kueuelib.node.log_files import ContainerLog
from kueuelib.node.processes import (
    MARK,
    DescriptorReader,
    LocalProcess,
    end_marked,
    first_child,
)
from kueuelib.node.sandbox import (
    MOST_PROCESSES,
    ImageFolder,
    Mount,
    bwrap_options,
    enter_command,
    owner_of,
)

START_SECONDS: Final = 10.0
_BEGIN_POLL: Final = 0.002
"""Seconds between looks for the command of a container."""
DRAIN_SECONDS: Final = 2.0
_NOT_EXECUTABLE: Final = 126
_LOADED_BY_LINKERS: Final = ("LD_", "GCONV_PATH", "LOCPATH", "NLSPATH")
"""Variables that would load files of a pod into the programs that enter its sandbox."""


class StartFailure(Exception):
    """The process of a container cannot be started; the reason is `StartError`."""


@attrs.frozen
class RunPlan:
    """Everything that a run of a container needs.

    Attributes:
        command: what to run.
        variables: the whole environment.
        image: the folders of its image.
        mounts: what it sees of the node; only in the sandbox.
        folder: the working folder.
        hostname: of the pod.
        memory: the limit in bytes of each process; None: no limit.
        mark: by which its processes are found.
        stdin: whether its input stays open for clients.
        stdin_once: whether it ends with the first client that writes to it.
        tty: whether it has a terminal.
        bwrap: the program of the sandbox; None: without.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    image: ImageFolder
    mounts: Sequence[Mount]
    folder: str
    hostname: str
    memory: int | None
    mark: str
    stdin: bool
    stdin_once: bool
    tty: bool
    bwrap: str | None


class ContainerRun:
    """A process of a container from its start to its end.

    Attributes:
        plan: what runs.
        log: what it has written.
        process: bubblewrap, or the process itself.
    """

    def __init__(self, plan: RunPlan, process: LocalProcess, log: ContainerLog, init: int) -> None:
        """Use `start`.

        Args:
            plan: what runs.
            process: that was started.
            log: where its output goes.
            init: the first process inside the sandbox, as the host numbers it; 0 without.
        """
        self.plan = plan
        self.log = log
        self.process = process
        self._init = init
        self._handle = os.pidfd_open(init) if init else -1
        self._owner = -1
        self._attached: set[_Listener] = set()

    @classmethod
    async def start(cls, plan: RunPlan, log: ContainerLog) -> ContainerRun:
        """Starts the process.

        Raises:
            StartFailure: it cannot be started.
        """
        variables = {**plan.variables, MARK: plan.mark}
        plan = attrs.evolve(plan, variables=variables)
        try:
            if plan.bwrap is not None:
                return await cls._start_inside(plan, plan.bwrap, log)
            command, own = list(plan.command), plan.tty
            if own:
                command = ["setsid", "--ctty", *command]
            if plan.memory is not None:
                limit = f'ulimit -v {max(plan.memory // 1024, 1)} && exec "$@"'
                command = ["/bin/sh", "-c", limit, "sh", *command]
            process = LocalProcess(
                command, variables, plan.folder, stdin=plan.stdin, tty=own, new_session=not own
            )
        except (OSError, ValueError) as error:
            raise StartFailure(f"{plan.command[0]}: {error}") from error
        return cls(plan, process, log, 0)

    @classmethod
    async def _start_inside(cls, plan: RunPlan, bwrap: str, log: ContainerLog) -> ContainerRun:
        """Starts it in the sandbox: bubblewrap waits until the limits are set."""
        options = bwrap_options(
            plan.image,
            plan.mounts,
            plan.variables,
            hostname=plan.hostname,
            folder=plan.folder,
            fresh_session=not plan.tty,
        )
        arguments = os.memfd_create("options")
        info, info_end = os.pipe()
        gate_end, gate = os.pipe()
        kept = (arguments, info_end, gate_end)
        names = [("--args", arguments), ("--info-fd", info_end), ("--block-fd", gate_end)]
        words = [word for name, number in names for word in (name, str(number))]
        inner = ["setsid", "--ctty", *plan.command] if plan.tty else list(plan.command)
        try:
            with os.fdopen(os.dup(arguments), "wb") as file:
                file.write(b"\0".join(os.fsencode(each) for each in options) + b"\0")
            os.lseek(arguments, 0, os.SEEK_SET)
            process = LocalProcess(
                [bwrap, *words, "--", *inner],
                {MARK: plan.mark, "PATH": os.defpath},
                "/",
                stdin=plan.stdin,
                tty=plan.tty,
                kept=kept,
            )
        except BaseException:
            os.close(info)
            os.close(gate)
            raise
        finally:
            for each in kept:
                os.close(each)
        try:
            init = await _child_of(info)
            if init is None:
                raise StartFailure(await _complaint(process))  # noqa: TRY301 - ends the process
            try:
                resource.prlimit(init, resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
                if plan.memory is not None:
                    resource.prlimit(init, resource.RLIMIT_AS, (plan.memory, plan.memory))
            except ProcessLookupError:
                raise StartFailure(await _complaint(process)) from None
            run = cls(plan, process, log, init)
            os.write(gate, b"x")
            with anyio.move_on_after(START_SECONDS):  # nobody may enter it half made
                for pause in itertools.repeat(_BEGIN_POLL):
                    if first_child(init) is not None or process.code is not None:
                        break
                    await anyio.sleep(pause)
        except BaseException:
            await process.kill()
            raise
        finally:
            os.close(gate)
        return run

    # ---- output

    async def pump(self) -> int:
        """Writes its output to the log until it ends; returns its exit code.

        The process does not outlive this, whatever happens.
        """
        try:
            async with anyio.create_task_group() as group:
                done = anyio.Event()
                group.start_soon(self._copy_all, done)
                code = await self.process.wait()
                if self._handle < 0:
                    end_marked(self.plan.mark)
                with anyio.move_on_after(DRAIN_SECONDS):
                    await done.wait()
                group.cancel_scope.cancel()
        finally:
            self.log.close()
            for listener in tuple(self._attached):
                listener.close()
            if self.process.code is None:
                self.kill()
            await self.process.kill()
            for each in (self._handle, self._owner):
                if each >= 0:
                    os.close(each)
            self._handle = self._owner = -1
        return code

    async def _copy_all(self, done: anyio.Event) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._copy, self.process.stdout, "stdout")
            if self.process.stderr is not None:
                group.start_soon(self._copy, self.process.stderr, "stderr")
        done.set()

    async def _copy(self, source: DescriptorReader, stream: str) -> None:
        async for data in source:
            pause = self.log.write(stream, data)
            for listener in tuple(self._attached):
                await listener.put(stream, data)
            if pause:
                await anyio.sleep(pause)

    # ---- control

    def signal(self, number: int) -> None:
        """Sends a signal to the process group of its command."""
        if self._handle < 0:
            self.process.signal(number)
            return
        child = first_child(self._init)
        if child is None:  # its command has not begun, or has ended
            self.kill()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(os.getpgid(child), number)

    def kill(self) -> None:
        """Kills it, with everything in the sandbox."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        else:
            end_marked(self.plan.mark)
        self.process.signal(signal.SIGKILL)

    def execute(
        self, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> LocalProcess | FailedProcess:
        """Starts another process in the container, or returns one that says why it cannot."""
        try:
            return self._execute(command, stdin=stdin, tty=tty)
        except (OSError, ValueError) as error:
            return FailedProcess(f"{command[0]}: {error}\n", tty=tty)

    def _execute(self, command: Sequence[str], *, stdin: bool, tty: bool) -> LocalProcess:
        command = ["setsid", "--ctty", *command] if tty else list(command)
        plan = self.plan
        variables = {"TERM": "xterm", **plan.variables} if tty else dict(plan.variables)
        if self._handle < 0:
            command = ["/bin/sh", "-c", 'exec "$@"', "sh", *command]
            return LocalProcess(
                command, variables, plan.folder, stdin=stdin, tty=tty, new_session=not tty
            )
        limits = [f"--nproc={MOST_PROCESSES}"]
        if plan.memory is not None:
            limits.append(f"--as={plan.memory}")
        command = ["prlimit", *limits, "--", *command]
        inside = [name for name in variables if name.startswith(_LOADED_BY_LINKERS)]
        if inside:
            settings = [f"{name}={variables.pop(name)}" for name in inside]
            command = ["/usr/bin/env", *settings, *command]
        if self._owner < 0:
            self._owner = owner_of(self._init)
        entered = enter_command(self._init, self._owner, command, plan.folder)
        return LocalProcess(entered, variables, "/", stdin=stdin, tty=tty)

    def attach(self, *, stdin: bool) -> AttachedRun:
        """Its streams, from now on."""
        return AttachedRun(self, stdin=stdin)

    def listen(self, listener: _Listener) -> Callable[[], None]:
        """Passes output on to a listener; returns what ends that."""
        self._attached.add(listener)
        return lambda: self._attached.discard(listener)


class _Listener:
    """A client that sees the output of a run. A slow one makes the run wait, within limits."""

    def __init__(self, *, tty: bool) -> None:
        pairs = {
            name: anyio.create_memory_object_stream[bytes](64)
            for name in (("stdout",) if tty else ("stdout", "stderr"))
        }
        self._senders = {name: pair[0] for name, pair in pairs.items()}
        self.receivers = {name: _Pieces(pair[1]) for name, pair in pairs.items()}
        self.closed = anyio.Event()

    async def put(self, stream: str, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            with anyio.move_on_after(1.0) as late:
                await self._senders[stream].send(data)
            if late.cancelled_caught:
                self.close()

    def close(self) -> None:
        for sender in self._senders.values():
            sender.close()
        self.closed.set()


class _Pieces(ByteReceiveStream):
    """A stream of bytes that somebody else cuts."""

    def __init__(self, source: MemoryObjectReceiveStream[bytes]) -> None:
        self._source = source
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = self._rest or await self._source.receive()
        self._rest = data[max_bytes:]
        return data[:max_bytes]

    async def aclose(self) -> None:
        await self._source.aclose()


class FailedProcess:
    """A process that could not be started; `ProcessStreams` for the kubelet's server."""

    stdin = None

    def __init__(self, text: str, *, tty: bool) -> None:
        """Args:
        text: why.
        tty: whether it would have had a terminal.
        """
        sender, receiver = anyio.create_memory_object_stream[bytes](1)
        with sender:
            sender.send_nowait(text.encode(errors="replace"))
        self.stdout: ByteReceiveStream | None = None
        self.stderr: ByteReceiveStream | None = None
        if tty:
            self.stdout = _Pieces(receiver)
        else:
            self.stderr = _Pieces(receiver)

    def resize(self, width: int, height: int) -> None:
        """Does nothing."""

    async def wait(self) -> int:
        """The code of a command that cannot be executed."""
        return _NOT_EXECUTABLE

    async def kill(self) -> None:
        """Closes the streams."""
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                await stream.aclose()


class _AttachedInput(ByteSendStream):
    """What a client writes to a run; its end is that of the run's input with `stdinOnce`."""

    def __init__(self, plan: RunPlan, stdin: ByteSendStream, detach: Callable[[], None]) -> None:
        self._lasts = not plan.stdin_once or plan.tty
        self._stdin = stdin
        self._detach = detach

    async def send(self, item: bytes) -> None:
        await self._stdin.send(item)

    async def aclose(self) -> None:
        if self._lasts:
            self._detach()
        else:
            await self._stdin.aclose()


class AttachedRun:
    """A client's view of a run; `ProcessStreams` for the kubelet's server.

    When its input ends, the client is detached, unless the input of the run ends as well.
    """

    def __init__(self, run: ContainerRun, *, stdin: bool) -> None:
        self._run = run
        self._listener = _Listener(tty=run.plan.tty)
        self._leave = run.listen(self._listener)
        self.stdin: ByteSendStream | None = None
        if stdin and run.process.stdin is not None:
            self.stdin = _AttachedInput(run.plan, run.process.stdin, self._listener.close)
        self.stdout: ByteReceiveStream = self._listener.receivers["stdout"]
        self.stderr: ByteReceiveStream | None = self._listener.receivers.get("stderr")

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal, in characters; does nothing without one."""
        self._run.process.resize(width, height)

    async def wait(self) -> int:
        """The exit code of the container, when it has ended."""
        return await self._run.process.wait()

    async def kill(self) -> None:
        """Detaches from the container."""
        if self.stdin is not None:
            await self.stdin.aclose()
        self._leave()
        self._listener.close()
        for stream in self._listener.receivers.values():
            await stream.aclose()


async def _child_of(info: int) -> int | None:
    """The first process in the sandbox, from what bubblewrap writes; None if it has failed."""
    reader = DescriptorReader(info)
    data = b""
    try:
        with anyio.move_on_after(START_SECONDS), suppress(anyio.EndOfStream):
            while not data.rstrip().endswith(b"}"):
                data += await reader.receive()
    finally:
        await reader.aclose()
    try:
        return int(orjson.loads(data)["child-pid"])
    except (orjson.JSONDecodeError, KeyError):
        return None


async def _complaint(process: LocalProcess) -> str:
    """What a bubblewrap that has failed says."""
    data = b""
    source = process.stderr or process.stdout
    with anyio.move_on_after(1.0), suppress(anyio.EndOfStream):
        while len(data) < 4096:
            data += await source.receive()
    return data.decode(errors="replace").strip() or "bwrap has not started"
