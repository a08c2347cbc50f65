"""One pod on the node: carries out what `lifecycle` decides, and reports it."""

from __future__ import annotations

import errno
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import orjson
from anyio.abc import ByteReceiveStream, TaskGroup

from kueuelib.api.meta import Obj, parse_time
from kueuelib.api.quantity import Quantity
from kueuelib.errors import ApiError, BadRequest, Conflict, NotFound, TransportError
from kueuelib.machinery.recurrence import EventType
from kueuelib.machinery.replica import version_number
from kueuelib.node import environment
from kueuelib.node.containers import ProcessStreams
from kueuelib.node.environment import TOKEN_FOLDER, ContainerConfigError, Surroundings, files_of
from kueuelib.node.lifecycle import (
    LOST,
    NEW,
    ContainerFacts,
    PodEnd,
    PodPlace,
    Termination,
    after_end,
    after_start,
    facts_from,
    grace_of,
    is_sidecar,
    next_actions,
    pod_end,
    pod_status,
)
from kueuelib.node.log_files import ContainerLog, last_text
from kueuelib.node.pod_fields import refusals
from kueuelib.node.pod_folder import PodFolder, hosts_file, inside
from kueuelib.node.probes import ProbeTally, try_probe
from kueuelib.node.runs import ContainerRun, RunPlan, StartFailure
from kueuelib.node.sandbox import HOME, ImageFolder, Mount
from kueuelib.node.services import names_of, with_addresses
from kueuelib.node.shared import NodeShared

RETRY_SECONDS: Final = 2.0
"""Between two tries to start a container whose Secrets or ConfigMaps are missing."""
REFRESH_SECONDS: Final = 60.0
"""Between two looks at the objects and tokens behind mounted files."""
_MOST_OUTPUT: Final = 10 * 1024
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
_LAST_OUTPUT: Final = 0.5
_CANNOT_START: Final = 128
_FORCED: Final = PodEnd(1.0)
"""A pod that the server has removed already."""


class PodWorker:
    """Runs a pod from its binding to its removal.

    Attributes:
        pod: as it is at the server; see `update`.
        address: of the pod.
        known: the facts of its containers by name.
        runs: their present runs by name.
    """

    def __init__(self, node: NodeShared, pod: Obj, address: str) -> None:
        """Args:
        node: what all pods of the node share.
        pod: raw, bound to the node.
        address: of the pod.
        """
        self.pod = pod
        self.address = address
        self.known: dict[str, ContainerFacts] = facts_from(pod, time.time())
        self.runs: dict[str, ContainerRun] = {}
        self.gone = False
        self._node = node
        self._folder = PodFolder(node.folder / "pods" / pod["metadata"]["uid"])
        self._wake = anyio.Event()
        began = (pod.get("status") or {}).get("startTime")
        self._started = parse_time(began) if began else time.time()
        self._rejection: PodEnd | None = None
        self._graces: dict[str, anyio.CancelScope] = {}
        ends = {name: facts.ended for name, facts in self.known.items()}
        lost = [name for name, end in ends.items() if end is not None and end.reason == LOST]
        if lost:
            text = f"The node ended while these containers ran: {', '.join(lost)}"
            self._event("Warning", "ContainerStatusUnknown", text)

    # ---- from outside

    def update(self, pod: Obj | None) -> None:
        """Takes over the pod as it is at the server now; None: it is gone."""
        if pod is None:
            self.gone = True
        elif version_number(pod) >= version_number(self.pod):
            self.pod = pod
        self.wake()

    def wake(self) -> None:
        """Looks again at once."""
        self._wake.set()

    def spec_of(self, container: str) -> Obj:
        """A container by its name.

        Raises:
            NotFound: there is none.
        """
        spec = self.pod["spec"]
        for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
            if each["name"] == container:
                return each  # type: ignore[no-any-return]
        name = self.pod["metadata"]["name"]
        raise NotFound(f'container "{container}" is not part of pod "{name}"')

    def running(self, container: str) -> ContainerRun:
        """The run of a container.

        Raises:
            NotFound: there is no such container.
            BadRequest: it does not run.
        """
        self.spec_of(container)
        run = self.runs.get(container)
        if run is None:
            name = self.pod["metadata"]["name"]
            raise BadRequest(f'container "{container}" in pod "{name}" does not run')
        return run

    def log_path(self, container: str, *, previous: bool) -> Path:
        """The file of a log.

        Raises:
            NotFound: there is no such container.
            BadRequest: it has not run, or has no previous run.
        """
        self.spec_of(container)
        facts = self.known.get(container, NEW)
        name = self.pod["metadata"]["name"]
        if previous:
            if facts.restarts < 1:
                raise BadRequest(
                    f'previous terminated container "{container}" in pod "{name}" not found'
                )
            return self._folder.log(container, facts.restarts - 1)
        if not facts.begun:
            why = facts.waiting[0] or "ContainerCreating"
            raise BadRequest(f'container "{container}" in pod "{name}" is waiting to start: {why}')
        return self._folder.log(container, facts.restarts)

    # ---- the loop

    async def run(self) -> None:
        """Works until the pod is gone, or the node stops and nothing of it runs."""
        over = (self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not over and (problems := refusals(self.pod, self._node.abilities)):
            self._rejection = PodEnd(0.0, "PodFeatureUnsupported", "; ".join(problems))
            self._event("Warning", self._rejection.reason, self._rejection.message)
        async with anyio.create_task_group() as group:
            group.start_soon(self._refresh_forever)
            while True:
                self._wake = anyio.Event()
                now = time.time()
                due: float | None = None
                if not over:
                    over, due = await self._step(group, now)
                if over and self.pod["metadata"].get("deletionTimestamp") and not self.gone:
                    await self._remove()
                    due = now + RETRY_SECONDS
                if over and (self.gone or self._node.stopping):
                    break
                with anyio.move_on_after(math.inf if due is None else max(due - now, 0.0)):
                    await self._wake.wait()
            group.cancel_scope.cancel()
        self._node.forget(self.pod["metadata"]["uid"])
        await anyio.to_thread.run_sync(self._folder.remove)

    def _end(self, now: float) -> PodEnd | None:
        if self.gone:
            return _FORCED
        own = pod_end(self.pod, now, self._started, shutdown=self._node.stopping)
        return self._rejection or own

    async def _step(self, group: TaskGroup, now: float) -> tuple[bool, float | None]:
        """Does what is due; returns whether all is over, and when to look again."""
        end = self._end(now)
        actions = next_actions(self.pod["spec"], self.known, now, end)
        for name in actions.stop:
            self.known[name] = attrs.evolve(self.known[name], stopping=True)
            group.start_soon(self._stop, name, grace_of(self.pod) if end is None else end.grace)
        if end is not None:  # it may have less time than when they began to stop
            for scope in self._graces.values():
                scope.deadline = min(scope.deadline, anyio.current_time() + end.grace)
        for name in actions.start:
            await self._start(group, name)
        if actions.start:
            self._wake.set()
        wrote = self.gone or await self._report(end, over=actions.over)
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        dues = [
            actions.due,
            None if limit is None or end is not None else self._started + limit,
            None if wrote else now + RETRY_SECONDS,
        ]
        due = min((each for each in dues if each is not None), default=None)
        return actions.over and wrote, due

    async def _report(self, end: PodEnd | None, *, over: bool) -> bool:
        """Writes the status if it has changed; returns whether the server has it."""
        place = PodPlace(self.address, self._node.address, self._started)
        status = pod_status(self.pod, self.known, place, time.time(), end, over=over)
        if _bare(status) == _bare(self.pod.get("status")):
            return True
        try:
            written = await self._node.write_status(self.pod, status)
            if version_number(written) >= version_number(self.pod):
                self.pod = written
        except NotFound:
            self.gone = True
        except Conflict:
            return False
        except (ApiError, TransportError) as error:
            self._node.log.warning("the status of a pod cannot be written yet", error=str(error))
            return False
        return True

    async def _remove(self) -> None:
        """Removes a pod that has ended, and is being deleted, from the server."""
        try:
            await self._node.remove(self.pod)
        except (ApiError, TransportError) as error:
            self._node.log.warning("a pod cannot be removed yet", error=str(error))

    def _event(self, type_: EventType, reason: str, message: str) -> None:
        self._node.events.event(self.pod, type_, reason, message)

    # ---- starting

    async def _start(self, group: TaskGroup, name: str) -> None:
        """Starts a container, or notes why not."""
        container = self.spec_of(name)
        facts = self.known.get(name, NEW)
        image = self._node.image(container.get("image", ""))
        if image is None:
            asked = container.get("image", "")
            text = f"Container image {asked!r} is not allowed: start the node with --image "
            self._wait(name, "ErrImageNeverPull", f"{text}{asked}=FOLDER", math.inf)
            return
        now = time.time()
        try:
            plan = await self._plan(container, image)
        except (ContainerConfigError, ApiError, TransportError, OSError) as error:
            self._wait(name, "CreateContainerConfigError", str(error), now + RETRY_SECONDS)
            return
        if not facts.begun:
            self._report_used_ports(container)
        probed = bool(container.get("startupProbe")) or bool(_hook(container, "postStart"))
        ready = not container.get("readinessProbe")
        begun = after_start(facts, now, probed=probed, ready=ready)
        self._folder.drop_logs(name, begun.restarts - 1)
        log = ContainerLog(self._folder.log(name, begun.restarts))
        try:
            run = await ContainerRun.start(plan, log)
        except StartFailure as error:
            log.close()
            self._event("Warning", "Failed", f"Error: {error}")
            end = Termination(_CANNOT_START, None, now, "StartError", str(error))
            self.known[name] = after_end(attrs.evolve(begun, since=now), end)
            return
        self.known[name] = attrs.evolve(begun, since=time.time())
        self.runs[name] = run
        self._event("Normal", "Started", f"Started container {name}")
        group.start_soon(self._live, name, run)

    def _report_used_ports(self, container: Obj) -> None:
        """Reports ports of a container that another program on the machine has."""
        for each in container.get("ports") or ():
            if each.get("protocol", "TCP") != "TCP":
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.address, each["containerPort"]))
                    probe.listen(1)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        port = f"{self.address}:{each['containerPort']}"
                        text = f"{port} is in use: another program listens on it or on 0.0.0.0"
                        self._event("Warning", "PortConflict", text)

    def _wait(self, name: str, reason: str, message: str, retry: float) -> None:
        """Notes why a container cannot be started; an Event reports it once."""
        facts = self.known.get(name, NEW)
        if facts.waiting != (reason, message):
            kind = reason if reason == "ErrImageNeverPull" else "Failed"
            self._event("Warning", kind, message if kind == reason else f"Error: {message}")
        self.known[name] = attrs.evolve(facts, waiting=(reason, message), retry=retry)

    async def _plan(self, container: Obj, image: ImageFolder) -> RunPlan:
        node, name = self._node, container["name"]
        around = await node.gather(self.pod, self.address)
        own = environment.variables_of(around, container)
        hostname = _hostname(self.pod)
        home = self._folder.folder("home")
        inside = node.bwrap is not None
        base = {
            "PATH": image.path,
            "HOME": HOME if inside else str(home),
            "HOSTNAME": hostname,
            "LANG": "C.UTF-8",
        }
        if container.get("tty"):
            base["TERM"] = "xterm"
        if not inside and (token := environment.token_files(around)) is not None:
            kubeconfig = self._kubeconfig(around, self._folder.put("token", token))
            base["KUBECONFIG"] = str(kubeconfig)
        command = environment.command_of(container, {**base, **own})
        if not inside:
            own = {name: with_addresses(text, around.hosts) for name, text in own.items()}
            command = [with_addresses(word, around.hosts) for word in command]
        variables = {**base, **own}
        memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        folder = container.get("workingDir") or variables["HOME"]
        mounts = self._mounts(around, container, variables) if inside else ()
        return RunPlan(
            command=command,
            variables=variables,
            image=image,
            mounts=mounts,
            folder=folder,
            hostname=hostname,
            memory=None if memory is None else Quantity.parse(memory).value(),
            mark=f"{node.folder}/{self.pod['metadata']['uid']}/{name}",
            stdin=bool(container.get("stdin")),
            stdin_once=bool(container.get("stdinOnce")),
            tty=bool(container.get("tty")),
            bwrap=node.bwrap,
        )

    def _kubeconfig(self, around: Surroundings, folder: Path) -> Path:
        """For programs without a sandbox, which do not find the files of their account."""
        host, port = self._node.server
        cluster = {"server": f"https://{host}:{port}", "certificate-authority": f"{folder}/ca.crt"}
        context = {"cluster": "c", "user": "u", "namespace": around.pod["metadata"]["namespace"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"tokenFile": f"{folder}/token"}}],
            "contexts": [{"name": "c", "context": context}],
            "current-context": "c",
        }
        return self._folder.text("kubeconfig", orjson.dumps(config).decode())

    def refresh_hosts(self) -> None:
        """Brings the names of Services up to date."""
        if self.runs and self._node.bwrap is not None:
            self._hosts()

    def _hosts(self) -> Path:
        """The file of `/etc/hosts`."""
        spec = self.pod["spec"]
        names = names_of(self._node.places, self.pod["metadata"]["namespace"])
        text = hosts_file(self.address, _hostname(self.pod), spec.get("hostAliases"), names)
        return self._folder.text("hosts", text)

    def _mounts(
        self, around: Surroundings, container: Obj, variables: Mapping[str, str]
    ) -> list[Mount]:
        """What a container sees of the node besides its image."""
        name, spec, folder = container["name"], self.pod["spec"], self._folder
        message = container.get("terminationMessagePath") or "/dev/termination-log"
        mounts = [
            Mount(folder.folder("home"), HOME, writable=True),
            Mount(folder.folder("tmp", name), "/tmp", writable=True),  # noqa: S108 - its own
            Mount(self._hosts(), "/etc/hosts", writable=False),
            Mount(folder.message(name), message, writable=True),
        ]
        volumes = {each["name"]: each for each in spec.get("volumes") or ()}
        for mount in container.get("volumeMounts") or ():
            volume = volumes[mount["name"]]
            files = files_of(around, volume)
            writable = files is None and not mount.get("readOnly")
            if claim := volume.get("persistentVolumeClaim"):
                source = self._node.abilities.claims[claim["claimName"]]
                writable = writable and not claim.get("readOnly")
            elif files is None:
                source = folder.folder("volumes", volume["name"])
                if mode := volume["emptyDir"].get("mode"):
                    source.chmod(mode & 0o777)
            else:
                source = folder.put(volume["name"], files)
                below = mount.get("subPath") or ""
                if expression := mount.get("subPathExpr"):
                    below = environment.expand(expression, variables)
                source = inside(source, below)
            mounts.append(Mount(source, mount["mountPath"].rstrip("/") or "/", writable=writable))
        targets = [each.target for each in mounts]
        token = environment.token_files(around)
        if token is not None and TOKEN_FOLDER not in targets:
            source = folder.put("service-account-token", token)
            mounts.append(Mount(source, TOKEN_FOLDER, writable=False))
        return mounts

    async def _refresh_forever(self) -> None:
        """Brings mounted ConfigMaps, Secrets and tokens up to date."""
        while True:
            await anyio.sleep(REFRESH_SECONDS)
            if not self.runs:
                continue
            try:
                around = await self._node.gather(self.pod, self.address)
                for volume in self.pod["spec"].get("volumes") or ():
                    files = files_of(around, volume)
                    if files is not None:
                        self._folder.put(volume["name"], files)
                if (token := environment.token_files(around)) is not None:
                    name = "service-account-token" if self._node.bwrap else "token"
                    self._folder.put(name, token)
            except (ContainerConfigError, ApiError, TransportError, OSError) as error:
                self._event("Warning", "FailedMount", f"mounted files cannot be updated: {error}")

    # ---- running

    async def _live(self, name: str, run: ContainerRun) -> None:
        """Accompanies a run to its end."""
        container = self.spec_of(name)
        began = self.known[name].since
        async with anyio.create_task_group() as group:
            group.start_soon(self._attend, name, container, run)
            code = await run.pump()
            group.cancel_scope.cancel()
        self.runs.pop(name, None)
        reason, message = self._last_words(name, container, code)
        end = Termination(code, began, time.time(), reason, message)
        self.known[name] = after_end(self.known[name], end)
        self.wake()

    def _last_words(self, name: str, container: Obj, code: int) -> tuple[str, str]:
        """Reason and message of an end."""
        path = self._folder.log(name, self.known[name].restarts)
        reason = "Error" if code else "Completed"
        text = ""
        with suppress(OSError), (self._folder.root / "messages" / name).open("rb") as file:
            text = file.read(4096).decode(errors="replace")
        said = last_text(path) if code else ""
        if said.startswith("bwrap: execvp"):
            return "StartError", said
        wants = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        return reason, text or (said if wants else "")

    async def _attend(self, name: str, container: Obj, run: ContainerRun) -> None:
        """Hook and probes of a run: first postStart and the startup probe, then the others."""
        if hook := _hook(container, "postStart"):
            problem = await self._try({**hook, "timeoutSeconds": math.inf}, container, run)
            if problem:
                self._event("Warning", "FailedPostStartHook", problem)
                await self._stop(name, grace_of(self.pod))
                return
        async for tally, probe in self._probe("startup", container, run):
            if tally.passing:
                break
            if tally.exhausted(probe):
                await self._unhealthy(name, container, probe, "startup")
                return
        facts = self.known[name]
        ready = not container.get("readinessProbe")
        self.known[name] = attrs.evolve(facts, started=True, ready=ready)
        self.wake()
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_liveness, name, container, run)
            group.start_soon(self._watch_readiness, name, container, run)

    async def _watch_liveness(self, name: str, container: Obj, run: ContainerRun) -> None:
        async for tally, probe in self._probe("liveness", container, run):
            if tally.exhausted(probe):
                await self._unhealthy(name, container, probe, "liveness")
                return

    async def _watch_readiness(self, name: str, container: Obj, run: ContainerRun) -> None:
        async for tally, _ in self._probe("readiness", container, run):
            if tally.passing != self.known[name].ready:
                self.known[name] = attrs.evolve(self.known[name], ready=tally.passing)
                self.wake()

    async def _probe(
        self, kind: str, container: Obj, run: ContainerRun
    ) -> AsyncIterator[tuple[ProbeTally, Obj]]:
        """The tally after each try of a probe, and the probe, until the run ends."""
        probe = container.get(f"{kind}Probe")
        if not probe:
            return
        tally = ProbeTally(passing=kind == "liveness")
        await anyio.sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            problem = await self._try(probe, container, run)
            tally = tally.after(probe, problem)
            if problem:
                text = f"{kind.capitalize()} probe failed: {problem}"
                self._event("Warning", "Unhealthy", text)
            yield tally, probe
            await anyio.sleep(probe.get("periodSeconds") or 10)

    async def _unhealthy(self, name: str, container: Obj, probe: Obj, kind: str) -> None:
        """Ends a container that fails its probe; its policy decides what follows."""
        policy = self.pod["spec"].get("restartPolicy") or "Always"
        restarted = policy != "Never" or is_sidecar(container)
        text = f"Container {name} failed {kind} probe"
        self._event("Normal", "Killing", text + (", will be restarted" if restarted else ""))
        grace = probe.get("terminationGracePeriodSeconds")
        await self._stop(name, grace_of(self.pod) if grace is None else float(grace))

    async def _try(self, probe: Obj, container: Obj, run: ContainerRun) -> str:
        async def execute(command: Sequence[str]) -> tuple[int, str]:
            process = run.execute(command, stdin=False, tty=False)
            try:
                output = await _output(process)
                return await process.wait(), output
            finally:
                await process.kill()

        return await try_probe(probe, container, self.address, execute)

    # ---- ending

    async def _stop(self, name: str, grace: float) -> None:
        """Ends a container: its hook, SIGTERM, and SIGKILL when its time is over."""
        run = self.runs.get(name)
        if run is None:
            return
        container = self.spec_of(name)
        self.known[name] = attrs.evolve(self.known[name], stopping=True)
        self._event("Normal", "Killing", f"Stopping container {name}")
        with anyio.move_on_after(grace) as self._graces[name]:
            if hook := _hook(container, "preStop"):
                problem = await self._try({**hook, "timeoutSeconds": math.inf}, container, run)
                if problem:
                    self._event("Warning", "FailedPreStopHook", problem)
            chosen = (container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
            run.signal(getattr(signal, chosen, signal.SIGTERM))
            await run.process.wait()
            return
        run.kill()


def _bare(value: Any) -> Any:
    """A value without the empty fields that a server adds or leaves out."""
    if isinstance(value, Mapping):
        bare = {name: _bare(each) for name, each in value.items()}
        return {name: each for name, each in bare.items() if each not in _EMPTY}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _hook(container: Mapping[str, Any], name: str) -> Obj | None:
    return (container.get("lifecycle") or {}).get(name)


def _hostname(pod: Mapping[str, Any]) -> str:
    spec = pod["spec"]
    given = spec.get("hostnameOverride") or spec.get("hostname")
    return str(given or pod["metadata"]["name"][:63].rstrip("-."))


async def _output(process: ProcessStreams) -> str:
    """What a process writes, its beginning."""
    parts: list[bytes] = []

    async def read(source: ByteReceiveStream) -> None:
        async for data in source:
            if sum(map(len, parts)) < _MOST_OUTPUT:
                parts.append(data)

    async with anyio.create_task_group() as group:
        for source in (process.stdout, process.stderr):
            if source is not None:
                group.start_soon(read, source)
        await process.wait()
        group.cancel_scope.deadline = anyio.current_time() + _LAST_OUTPUT
    return b"".join(parts)[:_MOST_OUTPUT].decode(errors="replace")
