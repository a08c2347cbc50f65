"""Local processes: their streams, terminals, signals and limits."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

_CHUNK: Final = 65536
MARK: Final = "KUEUELIB_CONTAINER"
"""The variable by which the processes of a container are found again."""


class DescriptorReader(ByteReceiveStream):
    """Reads a pipe or a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """Some bytes.

        Raises:
            EndOfStream: nothing more will come.
        """
        await anyio.lowlevel.checkpoint()
        while self._descriptor >= 0:
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
            except OSError as error:
                if error.errno != errno.EIO:  # the other side of a terminal is closed
                    raise
                break
            else:
                if not data:
                    break
                return data
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Closes it."""
        self._descriptor = _close(self._descriptor)


class DescriptorWriter(ByteSendStream):
    """Writes to a pipe or a terminal."""

    def __init__(self, descriptor: int, *, terminal: bool = False) -> None:
        self._descriptor = descriptor
        self._terminal = terminal
        os.set_blocking(descriptor, False)

    async def send(self, item: bytes) -> None:
        """Writes all of it.

        Raises:
            BrokenResourceError: nobody reads it.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Ends the input: closes the pipe, or sends Ctrl-D to the terminal."""
        if self._terminal and self._descriptor >= 0:
            with suppress(OSError):
                os.write(self._descriptor, b"\x04")
        self._descriptor = _close(self._descriptor)


def _close(descriptor: int) -> int:
    if descriptor >= 0:
        anyio.notify_closing(descriptor)
        os.close(descriptor)
    return -1


class LocalProcess:
    """A process with pipes or a terminal; `ProcessStreams` for the kubelet's server.

    Attributes:
        pid: of the process that was started.
        stdin: where to write; None without input.
        stdout: its output.
        stderr: its errors; None with a terminal.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        folder: str | Path,
        *,
        stdin: bool = False,
        tty: bool = False,
        kept: Sequence[int] = (),
        new_session: bool = True,
    ) -> None:
        """Starts it.

        Args:
            command: the program, looked up in the PATH of the node, and its arguments.
            variables: the whole environment.
            folder: the working folder.
            stdin: whether it has input; otherwise it reads nothing.
            tty: whether all of it is a terminal.
            kept: descriptors that it inherits.
            new_session: not if the command begins one by itself, for a terminal.

        Raises:
            OSError: it cannot be started.
        """
        self.stdin: DescriptorWriter | None = None
        self.stderr: DescriptorReader | None = None
        self._terminal = -1
        ours: list[int] = []
        theirs: list[int] = []
        try:
            if tty:
                self._terminal, slave = os.openpty()
                ours.append(self._terminal)
                theirs.append(slave)
                pipes = (slave, slave, slave)
            else:
                pairs = [os.pipe() for _ in range(3)]
                ours += [pairs[0][1], pairs[1][0], pairs[2][0]]
                theirs += [pairs[0][0], pairs[1][1], pairs[2][1]]
                pipes = (pairs[0][0], pairs[1][1], pairs[2][1])
            self._process = subprocess.Popen(  # noqa: S603 - what the pod says
                command,
                stdin=pipes[0],
                stdout=pipes[1],
                stderr=pipes[2],
                env=dict(variables),
                cwd=folder,
                pass_fds=kept,
                start_new_session=new_session,
            )
        except BaseException:
            for each in ours:
                os.close(each)
            raise
        finally:
            for each in theirs:
                os.close(each)
        self.pid = self._process.pid
        if tty:
            self.stdout = DescriptorReader(os.dup(self._terminal))
            if stdin:
                self.stdin = DescriptorWriter(os.dup(self._terminal), terminal=True)
            return
        self.stdout, self.stderr = DescriptorReader(ours[1]), DescriptorReader(ours[2])
        if stdin:
            self.stdin = DescriptorWriter(ours[0])
        else:
            os.close(ours[0])

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal, in characters; does nothing without one."""
        if self._terminal >= 0:
            size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    async def wait(self) -> int:
        """The exit code, when it has ended: 128 plus its number after a signal."""
        if (code := self.code) is not None:
            return code
        handle = os.pidfd_open(self.pid)  # one for each that waits; the process is not reaped yet
        try:
            while (code := self.code) is None:
                await anyio.wait_readable(handle)
        finally:
            _close(handle)
        return code

    def signal(self, number: int) -> None:
        """Sends a signal to it and its group, unless it has ended."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def kill(self) -> None:
        """Ends it and what it has started in its group, and closes the streams."""
        self.signal(signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await self.wait()
            await self.aclose()

    async def aclose(self) -> None:
        """Closes the streams of a process that has ended."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                await stream.aclose()
        self._terminal = _close(self._terminal)


# ---- processes of others -------------------------------------------------------------------------


def end_marked(mark: str, number: int = signal.SIGKILL) -> int:
    """Sends a signal to the processes of this user whose mark begins so.

    Returns:
        How many there were.
    """
    count = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if not _is_marked(entry, mark):
                continue
            handle = os.pidfd_open(int(entry.name))
            try:
                if _is_marked(entry, mark):  # still the same, now that its handle is held
                    signal.pidfd_send_signal(handle, number)
                    count += 1
            finally:
                os.close(handle)
    return count


def _is_marked(entry: Path, mark: str) -> bool:
    wanted = f"{MARK}={mark}".encode()
    return any(each.startswith(wanted) for each in (entry / "environ").read_bytes().split(b"\0"))


def first_child(pid: int) -> int | None:
    """The oldest child of a process, or None."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None
