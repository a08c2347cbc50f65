"""Processes of containers: their input, their end, and commands that cannot be started."""

from __future__ import annotations

import errno
from contextlib import ExitStack, asynccontextmanager, suppress

import anyio
import pytest

from kueuelib.errors import ConfigError
from kueuelib.node import node
from kueuelib.node.log_files import ContainerLog
from kueuelib.node.runs import ContainerRun, RunPlan
from kueuelib.node.sandbox import ImageFolder

SHOUT = "while read line; do echo got $line; done; echo end; exec sleep 60"


@asynccontextmanager
async def running(tmp_path, script, *, once=False):
    """A run without a sandbox; its log is a file of the folder."""
    plan = RunPlan(
        command=["/bin/sh", "-c", script],
        variables={"PATH": "/usr/bin:/bin"},
        image=ImageFolder("sh", ("/usr",)),
        mounts=(),
        folder=str(tmp_path),
        hostname="p",
        memory=None,
        mark=f"{tmp_path}/",
        stdin=True,
        stdin_once=once,
        tty=False,
        bwrap=None,
    )
    log = ContainerLog(tmp_path / "0.log")
    run = await ContainerRun.start(plan, log)
    async with anyio.create_task_group() as group:
        group.start_soon(run.pump)
        try:
            yield run
        finally:
            run.kill()
            await run.process.wait()


@asynccontextmanager
async def attached_to(run, *, stdin=True):
    attached = run.attach(stdin=stdin)
    yield attached
    await attached.kill()


async def said(attached, text):
    data = b""
    with anyio.fail_after(10):
        while text not in data:
            data += await attached.stdout.receive()


@pytest.mark.parametrize("leaves", [False, True])
async def test_the_input_ends_with_its_first_client(tmp_path, leaves):
    async with running(tmp_path, SHOUT, once=True) as run:
        async with attached_to(run, stdin=False) as watching, attached_to(run) as first:
            await first.stdin.send(b"one\n")
            await (first.kill() if leaves else first.stdin.aclose())
            await said(watching, b"got one\nend\n")
        async with attached_to(run) as second:
            with pytest.raises(anyio.ClosedResourceError):
                await second.stdin.send(b"two\n")


async def test_the_input_stays_open_for_the_next_client(tmp_path):
    async with running(tmp_path, SHOUT) as run:
        for line in (b"one", b"two"):
            async with attached_to(run) as attached:
                await attached.stdin.send(line + b"\n")
                await said(attached, b"got " + line)
                await attached.stdin.aclose()
                with pytest.raises(anyio.EndOfStream):
                    await attached.stdout.receive()


async def test_no_process_outlives_what_reads_it(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ContainerLog, "write", full)
    with suppress(ExceptionGroup):
        async with running(tmp_path, "echo up; exec sleep 60") as run, anyio.create_task_group():
            await anyio.sleep(10)
    assert run.process.code == 137


@pytest.mark.parametrize(
    ("command", "problem"),
    [(["a\0b"], "null byte"), (["true", "x" * 3_000_000], "Argument list too long")],
)
@pytest.mark.parametrize("tty", [False, True])
async def test_a_command_that_cannot_be_started_says_why(tmp_path, command, problem, tty):
    async with running(tmp_path, "exec sleep 60") as run:
        process = run.execute(command, stdin=True, tty=tty)
        assert problem in (await (process.stdout if tty else process.stderr).receive()).decode()
        assert await process.wait() == 126
        await process.kill()


def test_two_nodes_have_different_addresses(monkeypatch):
    monkeypatch.setattr(node, "_BLOCKS", 3)
    with ExitStack() as stack:
        blocks = []
        for _ in range(3):
            block, held = node.reserved_block("local")
            stack.enter_context(held)
            blocks.append(block)
        assert len(set(blocks)) == 3
        with pytest.raises(ConfigError, match="3 nodes use them all"):
            node.reserved_block("other")
    block, held = node.reserved_block("local")
    held.close()
    assert block in blocks
