"""What the kubelet's server asks of what runs the containers of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import attrs
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream


@attrs.frozen
class LogOptions:
    """Which part of a container's log is wanted, and in which form, as in `PodLogOptions`.

    Attributes:
        follow: continue with what the container writes later, until it ends.
        previous: of the container's previous run, instead of the present one.
        since: only lines written at or after this time, in seconds since the epoch.
        tail_lines: only so many lines at the end, counted before `limit_bytes`.
        limit_bytes: only so many bytes; the last line may be cut.
        timestamps: begin every line with its time in RFC 3339 with nanoseconds, and a space.
        stream: `All`, `Stdout` or `Stderr`.
    """

    follow: bool = False
    previous: bool = False
    since: float | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    stream: str = "All"


class ProcessStreams(Protocol):
    """A process that was started in a container, or a container that a client is attached to."""

    @property
    def stdin(self) -> ByteSendStream | None:
        """Where to write; None if it was not asked for. `aclose` ends the input."""
        ...

    @property
    def stdout(self) -> ByteReceiveStream | None:
        """The output; with a terminal, also the errors."""
        ...

    @property
    def stderr(self) -> ByteReceiveStream | None:
        """The errors; None with a terminal."""
        ...

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal, in characters; does nothing without one."""
        ...

    async def wait(self) -> int:
        """The exit code, when it has ended: 0 to 255, and 128 plus its number after a signal."""
        ...

    async def kill(self) -> None:
        """Ends a process of `exec` and all it has started; from a container, detaches only.

        Also closes the streams. May be called again, and after the end.
        """
        ...


class Containers(Protocol):
    """The containers of a node.

    Every method may raise `NotFound` for an unknown pod or container, and `BadRequest` for a
    container that does not run, in the words of a kubelet: `container "c" in pod "p" is waiting
    to start: ContainerCreating`. What they say reaches the client. What they start ends with
    `kill`, or `aclose`, also when the caller is cancelled.
    """

    async def logs(
        self, namespace: str, pod: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """Pieces of a log, of any length."""
        ...

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool,
        tty: bool,
    ) -> ProcessStreams:
        """Starts a process in a container.

        A program that cannot be started is a process that writes why to its stderr, or to its
        terminal, and ends with 127 if the file does not exist, and with 126 otherwise.
        """
        ...

    async def attach(
        self, namespace: str, pod: str, container: str, *, stdin: bool, tty: bool
    ) -> ProcessStreams:
        """Follows the output of a container's own process, and writes to its stdin if it has one.

        The end of the input ends the attachment, and with `stdinOnce` the stdin of the container.

        `wait` returns when the container ends.
        """
        ...

    async def dial(self, namespace: str, pod: str, port: int) -> ByteStream:
        """Connects to a port of a pod.

        Raises:
            OSError: nothing listens there.
        """
        ...
