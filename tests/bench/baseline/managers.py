"""Managers to measure, each named by a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

import go_manager
from rest import Rest

from kueuelib.controllers.manifests import manager_user
from kueuelib.testing.processes import free_port, stop_process

from .servers import Server

OWN = "kueuelib"
START_SECONDS = 120.0
ACCOUNT = manager_user("kueue-system")
CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: kueue-system
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "{metrics}"}}
webhook: {{host: 127.0.0.1, port: {webhook}{certificates}}}
leaderElection: {{leaderElect: false}}
clientConnection: {{qps: {qps}, burst: {qps}}}
controller:
  groupKindConcurrency:
    Job.batch: 5
    Pod: 5
    Workload.kueue.x-k8s.io: 5
    LocalQueue.kueue.x-k8s.io: 1
    ClusterQueue.kueue.x-k8s.io: 1
    ResourceFlavor.kueue.x-k8s.io: 1
integrations: {{frameworks: [batch/job, pod]}}
"""
SAMPLER = Path(__file__).with_name("sampler.py")


@attrs.frozen
class ManagerSpec:
    """How a manager is started.

    Attributes:
        label: its name in tables.
        command: the words of its command, with `{kubeconfig}` and `{config}` in them.
        own: whether it is kueuelib.
        install: further options of `kueuelib install`.
    """

    label: str
    command: tuple[str, ...]
    own: bool = False
    install: tuple[str, ...] = ()

    @property
    def full(self) -> bool:
        """Whether it reads a configuration: it is installed, and can say when it is ready."""
        return self.own or any("{config}" in word for word in self.command)


@attrs.frozen
class Options:
    """What all managers of a comparison share.

    Attributes:
        qps: calls per second that the configuration allows.
        webhooks: whether kueuelib's webhooks stay; without, they go once its manager is ready.
        crds: a folder with the CRDs for managers without a configuration; None: kueuelib's.
        profile: whether kueuelib's processor time is sampled.
        health: where the manager answers probes; 0: anywhere.
        webhook: where it serves webhooks; 0: anywhere.
        metrics: where kueuelib serves metrics; 0: nowhere.
        certificates: a folder with those of a manager other than kueuelib; None: it has none.
        install: whether a full manager is installed, and works as its ServiceAccount.
        wait: whether a full manager is ready when it is handed over.
    """

    qps: int = 2000
    webhooks: bool = True
    crds: Path | None = None
    profile: bool = False
    health: int = 0
    webhook: int = 0
    metrics: int = 0
    certificates: Path | None = None
    install: bool = True
    wait: bool = True


def parse(text: str) -> ManagerSpec:
    """Return the manager that an argument names.

    Args:
        text: `[LABEL=]kueuelib`, `[LABEL=]kueuelib@FOLDER` for the sources in another checkout or
            an environment with its own Python and packages, both perhaps with options of
            `kueuelib install`, or `[LABEL=]COMMAND`.

    Raises:
        SystemExit: the folder has neither.
    """
    label, equals, rest = text.partition("=")
    if not equals or not label.replace("-", "").replace(".", "").isalnum():
        label, rest = "", text
    program, *words = shlex.split(rest)
    name, at, named = program.partition("@")
    if name != OWN:
        return ManagerSpec(label or Path(program).name, (program, *words))
    command = (sys.executable, "-m", "kueuelib")
    if at:
        folder = Path(named).resolve()
        if (folder / "bin/python").exists():
            command = ("env", "-u", "PYTHONPATH", str(folder / "bin/python"), *command[1:])
        elif (folder / "src/kueuelib").is_dir():
            command = ("env", f"PYTHONPATH={folder / 'src'}", *command)
        else:
            raise SystemExit(f"{program}: there is neither bin/python nor src/kueuelib in {folder}")
    return ManagerSpec(label or Path(named).name or OWN, command, True, tuple(words))


@contextmanager
def managing(
    spec: ManagerSpec, server: Server, options: Options
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a manager until the end of the context."""
    folder = server.folder
    health, webhook = options.health or free_port(), options.webhook or free_port()
    config = folder / "config.yaml"
    mounted, access = None if spec.own else options.certificates, server.kubeconfig
    if spec.full and not spec.own and options.install:
        mounted, access = folder / "certificates", _under_account(server)
        found = go_manager.certificates()
        go_manager.mount(found, mounted)
        with Rest(server.kubeconfig) as rest:
            go_manager.install(rest, go_manager.manifests(webhook, found))
    certificates = f", certDir: {mounted}" if mounted else ""
    metrics = f"127.0.0.1:{options.metrics}" if spec.own and options.metrics else "0"
    fields = {"health": health, "webhook": webhook, "qps": options.qps, "metrics": metrics}
    config.write_text(CONFIG.format(**fields, certificates=certificates))
    names = {"kubeconfig": str(access), "config": str(config)}
    command = [word.format(**names) for word in spec.command]
    environment = dict(os.environ)
    if spec.own:
        environment |= _compiled(command, folder.parent / "bytecode")
        if options.install:
            install = ["install", "--kubeconfig", str(server.kubeconfig)]
            url = ["--webhook-url", f"https://127.0.0.1:{webhook}"]
            with (folder / "install.log").open("wb") as log:
                subprocess.run(
                    [*command, *install, *url, *spec.install], check=True, stdout=log, stderr=log
                )
        if options.profile:
            command[-2:] = [str(SAMPLER), str(folder / "profile.json")]
        access = _under_account(server) if options.webhooks else server.kubeconfig
        command += ["manager", "--kubeconfig", str(access), "--config", str(config)]
    with (folder / "manager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        if spec.full and options.wait:
            _wait(f"http://127.0.0.1:{health}/readyz", process, folder)
        yield process
    finally:
        stop_process(process)


def _compiled(command: Sequence[str], folder: Path) -> dict[str, str]:
    """The environment of a manager that finds its bytecode, as an installation does."""
    variables = {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    once = [*command[: command.index("-m")], "-c", "import kueuelib.cli.manager"]
    subprocess.run(once, check=True, env={**os.environ, **variables})
    return variables


def _under_account(server: Server) -> Path:
    """The kubeconfig with which a manager works under its ServiceAccount, as in a cluster."""
    access = yaml.safe_load(server.kubeconfig.read_text())
    for entry in access["users"]:
        entry["user"]["as"] = ACCOUNT
    path = server.folder / "kubeconfig-manager"
    path.write_text(yaml.safe_dump(access))
    return path


def _wait(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            text = (folder / "manager.log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"the manager does not start:\n{text}")
        time.sleep(0.1)


def answers(url: str) -> bool:
    """Whether a probe succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False
