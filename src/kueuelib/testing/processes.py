"""`kueuelib` commands as child processes: started in order, one log file each, stopped in reverse.

The demo and the end-to-end tests stand on this: the real commands, as a user types them.
"""

from __future__ import annotations

import http
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Self

import attrs

from kueuelib.errors import KueuelibError
from kueuelib.node.sandbox import find_bwrap

STOP_SECONDS = 60.0
"""Seconds that a process gets to end after SIGTERM; a busy machine needs many."""
LOG_LINES = 15
PORTS = range(15_000, 30_000)
KEPT_PORTS = 64
"""Ports that stay marked as taken: enough that each has its server before its mark goes."""
_port_marks: deque[socket.socket] = deque()

READY_SECONDS = 180.0
"""Seconds that a process gets to start."""

CONFIG = """\
apiVersion: config.kueue.x-k8s.io/{version}
kind: Configuration
namespace: kueue-system
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "{metrics}"}}
webhook: {{host: 127.0.0.1, port: {webhook}{webhooks}}}
leaderElection: {{leaderElect: false}}
controller:
  groupKindConcurrency: {{{workers}}}
integrations: {{frameworks: [{frameworks}]{integrations}}}
{settings}
"""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free, and that nobody else who asks here is given meanwhile.

    It is below the ports that Linux and macOS give to connections by default, which come and go.
    A UDP socket on the same port marks it as taken, for other processes as well, until this
    process ends or has asked for `KEPT_PORTS` more.

    Raises:
        OSError: none was found.
    """
    for port in random.SystemRandom().sample(PORTS, 100):
        mark = socket.socket(type=socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
            with socket.socket() as tcp:
                tcp.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _port_marks.append(mark)
        if len(_port_marks) > KEPT_PORTS:
            _port_marks.popleft().close()
        return port
    raise OSError(f"no free port found from {PORTS.start} to {PORTS.stop - 1}")


class ProcessError(KueuelibError):
    """A child process did not start, or ended early."""


class Processes:
    """Child processes that run `kueuelib` commands.

    Args:
        folder: for log files, kubeconfig and configuration.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _name, process in reversed(self._running):
            stop_process(process)
        for log in self._logs:
            log.close()

    def start(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        """Starts `kueuelib ARGS` in the background."""
        return self.start_program(name, "-m", "kueuelib", *args)

    def start_program(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        """Starts `python ARGS` in the background."""
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, *args],
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self._running.append((name, process))
        return process

    def finish(self, name: str, *args: str, seconds: float) -> None:
        """Runs `kueuelib ARGS` to its end.

        Raises:
            ProcessError: it failed or took longer than `seconds`.
        """
        process = self.start(name, *args)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(name, f"took longer than {seconds:g} s") from None
        if code:
            raise self.failure(name, f"ended with exit code {code}")

    def pid(self, name: str) -> int:
        """The process id of a background process."""
        return next(process.pid for label, process in self._running if label == name)

    def kill(self, name: str) -> None:
        """Kills a background process, like a crash."""
        for label, process in self._running:
            if label == name and process.poll() is None:
                process.kill()
                process.wait()
        self._running = [entry for entry in self._running if entry[0] != name]

    def wait(self, name: str, seconds: float) -> int:
        """The exit code of a background process that ends by itself.

        Raises:
            subprocess.TimeoutExpired: it still runs after `seconds`.
        """
        (process,) = [process for label, process in self._running if label == name]
        return process.wait(seconds)

    def stop(self, name: str) -> int:
        """Ends a background process with SIGTERM; returns its exit code."""
        code = 0
        for label, process in self._running:
            if label == name:
                code = stop_process(process)
        self._running = [entry for entry in self._running if entry[0] != name]
        return code

    def check(self) -> None:
        """Raises ProcessError if a background process has ended."""
        for name, process in self._running:
            code = process.poll()
            if code:
                raise self.failure(name, f"ended with exit code {code}")

    def wait_for_url(self, url: str, name: str, seconds: float = READY_SECONDS) -> None:
        """Waits until a process answers an HTTP GET with 200.

        Raises:
            ProcessError: it took too long, or ended.
        """
        self._wait(lambda: _answers(url), name, seconds, 0.05)

    def failure(self, name: str, problem: str) -> ProcessError:
        """An error that shows the end of a process's log."""
        path = self.folder / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return ProcessError("\n".join([f"kueuelib {name} {problem}", *lines]))

    def wait_for_text(self, text: str, name: str, seconds: float) -> None:
        """Waits until a process has written a text.

        Raises:
            ProcessError: it took too long, or ended.
        """
        log = self.folder / f"{name}.log"
        self._wait(lambda: text in log.read_text(errors="replace"), name, seconds)

    def wait_for_file(self, path: Path, name: str, seconds: float) -> None:
        """Waits until a process has written a file.

        Raises:
            ProcessError: it took too long, or ended.
        """
        self._wait(path.exists, name, seconds)

    def _wait(
        self, ready: Callable[[], bool], name: str, seconds: float, pause: float = 0.02
    ) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise self.failure(name, f"is not ready after {seconds:g} s")
            time.sleep(pause)


def start_node(
    processes: Processes, kubeconfig: Path, images: Mapping[str, str | Path], *options: str
) -> None:
    """Starts `kueuelib node` and waits until it is ready; without bubblewrap, without a sandbox.

    Args:
        processes: the running processes; the node's files are in their folder.
        kubeconfig: of the server, which is on loopback.
        images: the folder that stands for an image, usually a virtual environment, by its name.
        options: further options of the command.

    Raises:
        ProcessError: it did not start; the node refuses to run as root.
    """
    args = ["--kubeconfig", str(kubeconfig), "--folder", str(processes.folder / "node"), *options]
    for name, folder in images.items():
        args += ["--image", f"{name}={folder}"]
    if not find_bwrap():
        args.append("--no-sandbox")
    processes.start("node", "node", *args)
    processes.wait_for_text("is ready", "node", READY_SECONDS)


@attrs.define
class LocalCluster:
    """An embedded API server with a simulated cluster, and the manager, as processes.

    Attributes:
        processes: the running processes.
        webhook_port: where the manager serves its webhooks.
        health_port: where it answers probes.
        metrics_port: where it serves metrics; 0 if it does not.
        frameworks: the integrations that the manager enables.
        integrations: further entries of its `integrations`, as YAML in one line.
        webhook: further entries of its `webhook`, as YAML in one line.
        settings: further lines of its configuration, as YAML.
        options: further options of its command.
        version: of its configuration.
        workers: how many objects of a kind are reconciled at a time, as its configuration says.
    """

    processes: Processes
    webhook_port: int = attrs.field(factory=free_port)
    health_port: int = attrs.field(factory=free_port)
    metrics_port: int = 0
    frameworks: tuple[str, ...] = ("batch/job",)
    integrations: str = ""
    webhook: str = ""
    settings: str = ""
    options: tuple[str, ...] = ()
    version: str = "v1beta1"
    workers: str = "Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 5"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's access to the server."""
        return self.processes.folder / "kubeconfig"

    def start_server(self, *options: str, simulate: bool = True) -> None:
        """Starts `kueuelib apiserver`, with further options, and waits until it answers."""
        args = ["apiserver", "--port", "0", "--kubeconfig", str(self.kubeconfig)]
        more = ["--simulate"] if simulate else []
        self.processes.start("apiserver", *args, *more, *options)
        self.processes.wait_for_file(self.kubeconfig, "apiserver", READY_SECONDS)

    def install(self) -> None:
        """Runs `kueuelib install`, with webhooks by URL."""
        url = f"https://127.0.0.1:{self.webhook_port}"
        args = ["--kubeconfig", str(self.kubeconfig), "--webhook-url", url]
        self.processes.finish("install", "install", *args, seconds=READY_SECONDS)

    def start_manager(self) -> None:
        """Starts `kueuelib manager`; `wait_for_manager` waits for it."""
        config = self.processes.folder / "config.yaml"
        config.write_text(
            CONFIG.format(
                version=self.version,
                health=self.health_port,
                webhook=self.webhook_port,
                metrics=f"127.0.0.1:{self.metrics_port}" if self.metrics_port else "0",
                frameworks=", ".join(self.frameworks),
                integrations=f", {self.integrations}" if self.integrations else "",
                webhooks=f", {self.webhook}" if self.webhook else "",
                settings=self.settings,
                workers=self.workers,
            )
        )
        args = ["--kubeconfig", str(self.kubeconfig), "--config", str(config)]
        self.processes.start("manager", "manager", *args, *self.options)

    def wait_for_manager(self) -> None:
        """Waits until the manager serves its webhooks and its controllers run."""
        self.processes.wait_for_url(f"http://127.0.0.1:{self.health_port}/readyz", "manager")

    def start(self) -> None:
        """All of it."""
        self.start_server()
        self.install()
        self.start_manager()
        self.wait_for_manager()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:  # noqa: S310 - our own address
            return bool(response.status == http.HTTPStatus.OK)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the answer
        return False
    except OSError:
        return False


def stop_process(process: subprocess.Popen[bytes]) -> int:
    """End a process with SIGTERM, then SIGKILL; return its exit code."""
    code = process.poll()
    if code is not None:
        return code
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
