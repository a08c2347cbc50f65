"""The node: joins a server on loopback, runs the pods that are bound to it, and leaves."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import anyio
import attrs
from anyio.abc import ByteStream, TaskGroup

from kueuelib import __version__
from kueuelib.api.kinds import CONFIG_MAPS, LEASES, NODES, PODS, SERVICES
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    annotations_of,
    format_micro_time,
    format_time,
    is_true,
    key_of,
    labels_of,
    parse_time,
    with_raw_condition,
)
from kueuelib.errors import AlreadyExists, ApiError, ConfigError, NotFound, TransportError
from kueuelib.machinery.store import Delta
from kueuelib.node.containers import LogOptions, ProcessStreams
from kueuelib.node.log_files import read_log
from kueuelib.node.pod_fields import NodeAbilities
from kueuelib.node.pod_folder import PodFolder
from kueuelib.node.processes import end_marked
from kueuelib.node.sandbox import ImageFolder, find_bwrap
from kueuelib.node.server import KubeletServer
from kueuelib.node.services import places
from kueuelib.node.shared import NodeShared, authority_of
from kueuelib.node.worker import PodWorker
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.dialling import host_and_port
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import PatchType

LOCAL: Final = "kueuelib.dev/local"
"""Label and taint of nodes whose pods are local processes."""
TAINT: Final[Mapping[str, str]] = {"key": LOCAL, "value": "true", "effect": "NoSchedule"}
FOLDER: Final = "kueuelib.dev/node-folder"
"""The annotation with the host and the folder of a node, by which it knows its own Node."""
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
MOST_PODS: Final = 110
STOP_SECONDS: Final = 35.0
"""Seconds within which pods have ended when the node stops."""
_ADDRESS: Final = "127.0.0.1"
_BLOCKS: Final = 128
_SIGNERS: Final = ObjectKey("kube-system", "extension-apiserver-authentication")


@attrs.frozen
class NodeOptions:
    """The options of a local node.

    Attributes:
        name: of the Node.
        images: the allowed images.
        claims: the folders that stand for PersistentVolumeClaims, by name.
        cpu: its capacity, a quantity; empty: the processors of the machine.
        memory: its capacity, a quantity; empty: that of the machine.
        labels: further labels of the Node.
        sandbox: whether bubblewrap is used; None: if it is there.
        folder: where its files are; None: a folder of its own among the temporary files.
        port: of the kubelet's server; 0 takes a free one.
    """

    name: str
    images: tuple[ImageFolder, ...]
    claims: Mapping[str, Path] = attrs.field(factory=dict)
    cpu: str = ""
    memory: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict)
    sandbox: bool | None = None
    folder: Path | None = None
    port: int = 0


class LocalNode:
    """A node as an asynchronous context manager: it is ready on entry, and has stopped on exit.

    It implements `Containers` for its kubelet's server.

    Raises:
        ConfigError: on entry: it runs as root, the server is not on loopback, bubblewrap is
            missing or does not work, another node has the name.
    """

    def __init__(self, client: Client, options: NodeOptions) -> None:
        """Args:
        client: the API; closed by its owner.
        options: what the node is.
        """
        self.options = options
        self._client = client
        self._workers: dict[str, PodWorker] = {}
        self._stack = AsyncExitStack()
        self._idle = anyio.Event()
        self._log = get_logger("node", node=options.name)
        self._obj: Obj = {}
        self._endpoints: Obj = {}
        self._block = ""
        self._group: TaskGroup
        self._shared: NodeShared

    @property
    def sandboxed(self) -> bool:
        """Whether its pods run in a sandbox."""
        return self._shared.bwrap is not None

    async def __aenter__(self) -> Self:
        endpoint = await self._client.transport.endpoint()
        refuse_unfit(endpoint.url, os.geteuid())
        async with AsyncExitStack() as stack:
            folder = _own_folder(self.options)
            stack.callback(_locked(folder).close)
            self._block, held = reserved_block(self.options.name)
            stack.callback(held.close)
            bwrap = await _bwrap(self.options.sandbox)
            if ended := end_marked(f"{folder}/"):
                self._log.warning("ended processes that an earlier run left", count=ended)
            events = EventRecorder(self._client, "kubelet", instance=self.options.name)
            self._shared = NodeShared(
                client=self._client,
                events=events,
                folder=folder,
                images=self.options.images,
                abilities=NodeAbilities(
                    bwrap is not None, os.getuid(), os.getgid(), self.options.claims
                ),
                bwrap=bwrap,
                address=_ADDRESS,
                allocatable=capacity_of(self.options, folder),
                authority=authority_of(endpoint.tls),
                server=host_and_port(urlsplit(endpoint.url)),
            )
            stack.push_async_callback(anyio.to_thread.run_sync, _emptied, folder)
            await self._register(folder)
            self._group = await stack.enter_async_context(anyio.create_task_group())
            await self._group.start(_started, events.run)
            stack.push_async_callback(self._leave)
            self._group.start_soon(self._renew_forever)
            informer = Informer(
                self._client, PODS, field_selector=f"spec.nodeName={self.options.name}"
            )
            informer.add_handler(self._on_pod)
            self._group.start_soon(informer.run)
            await informer.wait_synced()
            _sweep(folder, self._workers.keys())
            await self._serve()
            self._follow_services(informer)
            await self._report(True, "KubeletReady", "the node runs pods as local processes")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # ---- the Node

    async def _register(self, folder: Path) -> None:
        """Makes the Node, or takes over that of an earlier run.

        Raises:
            ConfigError: another program has a node of that name, or another node runs under it.
        """
        name = self.options.name
        labels = {
            **self.options.labels,
            LOCAL: "true",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                platform.machine(), platform.machine()
            ),
        }
        notes = {FOLDER: f"{socket.gethostname()}:{folder}"}
        node = NODES.new(name, labels=labels, spec={"taints": [dict(TAINT)]})
        node["metadata"]["annotations"] = notes
        try:
            self._obj = await self._client.create(NODES, node)
        except AlreadyExists:
            key = ObjectKey("", name)
            present = await self._client.get(NODES, key)
            if labels_of(present).get(LOCAL) != "true":
                problem = "another program has a node with this name"
                raise ConfigError(f"--name {name}", problem, "choose another name") from None
            own = annotations_of(present).get(FOLDER) == notes[FOLDER]  # and no other has its lock
            if not own and is_true(present, "Ready") and await self._is_renewed():
                problem = f"a node of this name runs with {annotations_of(present).get(FOLDER)}"
                raise ConfigError(f"--name {name}", problem, "choose another name") from None
            patch = {"metadata": {"labels": labels, "annotations": notes}}
            self._obj = await self._client.patch(NODES, key, patch, PatchType.MERGE)

    async def _is_renewed(self) -> bool:
        """Whether a node of this name lives, by its Lease."""
        lease = await read(self._client, LEASES, ObjectKey(LEASE_NAMESPACE, self.options.name))
        renewed = ((lease or {}).get("spec") or {}).get("renewTime")
        return bool(renewed) and time.time() - parse_time(renewed) < LEASE_SECONDS

    async def _report(self, ready: bool | None, reason: str, message: str) -> None:
        """Writes the status of the Node."""
        now = time.time()
        conditions = (self._obj.get("status") or {}).get("conditions") or ()
        conditions = with_raw_condition(conditions, "Ready", ready, reason, message, now=now)
        for each in conditions:
            if each["type"] == "Ready":
                each["lastHeartbeatTime"] = format_time(now)
        status = {
            "capacity": dict(self._shared.allocatable),
            "allocatable": dict(self._shared.allocatable),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": _ADDRESS},
                {"type": "Hostname", "address": self.options.name},
            ],
            "nodeInfo": _node_info(self.sandboxed),
            "daemonEndpoints": self._endpoints,
        }
        self._obj = await self._client.patch(
            NODES,
            ObjectKey("", self.options.name),
            {"status": status},
            PatchType.MERGE,
            subresource="status",
        )

    async def _serve(self) -> None:
        """Starts the kubelet's server, which the API server dials for logs, exec and ports.

        Raises:
            ConfigError: the API server does not say by which certificates it dials.
        """
        signers = await read(self._client, CONFIG_MAPS, _SIGNERS)
        pem = ((signers or {}).get("data") or {}).get("client-ca-file")
        if not pem:
            fix = "join kueuelib apiserver, or a server that kubeadm has set up"
            raise ConfigError(f"the ConfigMap {_SIGNERS}", "has no client-ca-file", fix)
        server = KubeletServer(self, self.pods, pem, host=_ADDRESS, port=self.options.port)
        await self._group.start(_started, server.run)
        self._endpoints = {"kubeletEndpoint": {"Port": server.port}}

    async def _renew_forever(self) -> None:
        """Renews the Lease that shows that the node lives."""
        while True:
            try:
                await self._renew()
            except (ApiError, TransportError) as error:
                self._log.warning("the Lease cannot be renewed", error=str(error))
            await anyio.sleep(RENEW_SECONDS)

    async def _renew(self) -> None:
        name = self.options.name
        key = ObjectKey(LEASE_NAMESPACE, name)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(time.time()),
        }
        try:
            await self._client.patch(LEASES, key, {"spec": spec}, PatchType.MERGE)
        except NotFound:
            uid = self._obj["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            lease = LEASES.new(name, LEASE_NAMESPACE, spec=spec)
            lease["metadata"]["ownerReferences"] = [owner]
            await self._client.create(LEASES, lease)

    async def _leave(self) -> None:
        """Ends all pods, and reports that the node is not ready."""
        self._shared.stopping = True
        with anyio.CancelScope(shield=True):
            for worker in self._workers.values():
                worker.wake()
            with anyio.move_on_after(STOP_SECONDS):
                while self._workers:
                    self._idle = anyio.Event()
                    await self._idle.wait()
            with anyio.move_on_after(5.0), suppress(ApiError, TransportError):
                await self._report(False, "KubeletNotReady", "the node has stopped")
            end_marked(f"{self._shared.folder}/")
            self._group.cancel_scope.cancel()

    def _follow_services(self, pods: Informer) -> None:
        """Keeps the names of Services in the pods up to date."""
        services = Informer(self._client, SERVICES)
        reported: set[str] = set()

        def changed(_: Delta[Obj]) -> None:
            known = places(services.store.items(), self.pods())
            if known == self._shared.places:
                return
            self._shared.places = known
            for each in known:
                text = ", ".join(f"{port} (of the pod: {target})" for _, port, target in each.moved)
                if text and f"{each.namespace}/{each.name} {text}" not in reported:
                    reported.add(f"{each.namespace}/{each.name} {text}")
                    about = services.store.get(ObjectKey(each.namespace, each.name))
                    message = f"local nodes do not serve port {text}; use the port of the pod"
                    self._shared.events.event(about or {}, "Warning", "PortNotServed", message)
            for worker in self._workers.values():
                worker.refresh_hosts()

        for each in (services, pods):
            each.add_handler(changed)
        self._group.start_soon(services.run)

    # ---- its pods

    def _on_pod(self, delta: Delta[Obj]) -> None:
        uid = "" if delta.new is None else delta.new["metadata"]["uid"]
        before = "" if delta.old is None else delta.old["metadata"]["uid"]
        if before != uid and (worker := self._workers.get(before)) is not None:
            worker.update(None)
        if delta.new is None:
            return
        if (worker := self._workers.get(uid)) is not None:
            worker.update(delta.new)
        elif not self._shared.stopping:
            worker = PodWorker(self._shared, delta.new, self._next_address())
            self._workers[uid] = worker
            self._group.start_soon(self._work, uid, worker)

    async def _work(self, uid: str, worker: PodWorker) -> None:
        try:
            await worker.run()
        except Exception as error:  # noqa: BLE001 - one pod must not end the others
            await self._give_up(worker.pod, error)
        finally:
            self._workers.pop(uid, None)
            self._idle.set()

    async def _give_up(self, pod: Obj, error: Exception) -> None:
        """Ends a pod that the node can no longer run, for example because its disk is full."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        message = f"{type(error).__name__}: {error}"
        meta = pod["metadata"]
        self._log.error("a pod has failed on the node", pod=key_of(pod), exc_info=error)
        self._shared.events.event(pod, "Warning", "UnexpectedNodeError", message)
        mark = f"{self._shared.folder}/{meta['uid']}/"
        await anyio.to_thread.run_sync(end_marked, mark)
        reason, now = "UnexpectedNodeError", time.time()
        conditions = (pod.get("status") or {}).get("conditions") or ()
        conditions = with_raw_condition(conditions, "Ready", False, reason, message, now=now)
        status: Obj = {"phase": "Failed", "reason": reason, "message": message}
        status |= {"conditions": conditions, "containerStatuses": None}  # nothing is known of them
        try:
            await self._shared.write_status(pod, {**(pod.get("status") or {}), **status})
        except (ApiError, TransportError) as failure:
            self._log.warning("the status of a pod cannot be written", error=str(failure))

    def _next_address(self) -> str:
        """A free address of the pods of this node, within 127.0.0.0/8."""
        used = {each.address for each in self._workers.values()}
        every = (f"{self._block}.{number >> 8}.{number & 255}" for number in range(1, 2**16 - 1))
        return next((each for each in every if each not in used), _ADDRESS)

    def pods(self) -> list[Obj]:
        """The pods of the node."""
        return [each.pod for each in self._workers.values()]

    def _find(self, namespace: str, pod: str) -> PodWorker:
        for each in self._workers.values():
            meta = each.pod["metadata"]
            if (meta["namespace"], meta["name"]) == (namespace, pod):
                return each
        raise NotFound(f'pod "{pod}" not found on node "{self.options.name}"')

    # ---- `Containers`

    async def logs(
        self, namespace: str, pod: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """Pieces of a log."""
        worker = self._find(namespace, pod)
        path = worker.log_path(container, previous=options.previous)
        run = worker.runs.get(container)
        return read_log(path, options, None if run is None or options.previous else run.log)

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
        """Starts a process in a container."""
        run = self._find(namespace, pod).running(container)
        return run.execute(command, stdin=stdin, tty=tty)

    async def attach(
        self, namespace: str, pod: str, container: str, *, stdin: bool, tty: bool
    ) -> ProcessStreams:
        """The streams of the container's own process."""
        del tty
        return self._find(namespace, pod).running(container).attach(stdin=stdin)

    async def dial(self, namespace: str, pod: str, port: int) -> ByteStream:
        """Connects to a port of a pod; on 127.0.0.1 only to one that the pod declares."""
        worker = self._find(namespace, pod)
        try:
            return await anyio.connect_tcp(worker.address, port)
        except OSError:
            containers = worker.pod["spec"]["containers"]
            ports = [one for each in containers for one in each.get("ports") or ()]
            if all(one["containerPort"] != port for one in ports):
                raise
        return await anyio.connect_tcp(_ADDRESS, port)


# ---- the machine ---------------------------------------------------------------------------------


def refuse_unfit(url: str, uid: int) -> None:
    """Refuses what would be dangerous.

    Args:
        url: of the API server.
        uid: of the user.

    Raises:
        ConfigError: the server is not on loopback, or the user is root.
    """
    host = urlsplit(url).hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        fix = "join a server on 127.0.0.1, such as kueuelib apiserver"
        raise ConfigError(url, "is not on loopback, so others could run programs here", fix)
    if uid == 0:
        fix = "start it as another user, for example with setpriv --reuid"
        raise ConfigError("kueuelib node", "does not run as root", fix)
    if not sys.platform.startswith("linux"):
        raise ConfigError("kueuelib node", f"does not run on {sys.platform}", "use Linux")


async def _bwrap(wanted: bool | None) -> str | None:
    """The program of the sandbox, if it works here.

    Raises:
        ConfigError: it is wanted, and is missing or does not work.
    """
    if wanted is False:
        return None
    program, problem = find_bwrap(), "bwrap is not on the PATH"
    if program is not None:
        test = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc"]
        result = await anyio.run_process([program, *test, "true"], check=False)
        if not result.returncode:
            return program
        problem = result.stderr.decode(errors="replace").strip()
    fix = "install bubblewrap and allow user namespaces, or use --no-sandbox"
    raise ConfigError("the sandbox", problem, fix)


def capacity_of(options: NodeOptions, folder: Path) -> dict[str, str]:
    """What the pods of a node may request together."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": options.cpu or str(len(os.sched_getaffinity(0))),
        "memory": options.memory or f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(folder).free // 1024}Ki",
        "pods": str(MOST_PODS),
    }


def _node_info(sandboxed: bool) -> Obj:
    version = f"v{__version__}"
    return {
        "machineID": socket.gethostname(),
        "systemUUID": socket.gethostname(),
        "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "kernelVersion": platform.release(),
        "osImage": platform.system(),
        "containerRuntimeVersion": "bubblewrap://local" if sandboxed else "process://local",
        "kubeletVersion": version,
        "kubeProxyVersion": version,
        "operatingSystem": "linux",
        "architecture": platform.machine(),
    }


def _base_folder() -> Path:
    """Where the folders of nodes are that are not given one."""
    return Path(tempfile.gettempdir()).absolute() / f"kueuelib-node-{os.getuid()}"


def _own_folder(options: NodeOptions) -> Path:
    """The folder of the node, which no other user can read.

    Raises:
        ConfigError: it belongs to somebody else, or cannot be made.
    """
    base = _base_folder()
    folder = (options.folder or base / options.name).absolute()
    try:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / "lock").exists():
            fix = "choose an empty --folder: a node removes what is in it"
            raise ConfigError(str(folder), "is not empty, and not of a node", fix)
        for each in (folder,) if options.folder is not None else (base, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = each.lstat()
            if each.is_symlink() or not each.is_dir() or status.st_uid != os.getuid():
                raise ConfigError(
                    str(each), "is not a folder that you own", "choose another --folder"
                )
            each.chmod(0o700)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(folder), problem, "choose another --folder") from error
    return folder


def _locked(folder: Path) -> Any:
    """The lock of a folder, held until it is closed.

    Raises:
        ConfigError: another node has it.
    """
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        problem = "another node uses this folder"
        fix = "stop that node, or choose another --name or --folder"
        raise ConfigError(str(folder), problem, fix) from None
    return file


def reserved_block(name: str) -> tuple[str, socket.socket]:
    """Reserves addresses for the pods of a node, which no other node of the machine has.

    An abstract Unix socket belongs to one network namespace, as loopback addresses do.

    Args:
        name: of the node; decides which addresses are tried first.

    Returns:
        The first half of the addresses, and what reserves them until it is closed.

    Raises:
        ConfigError: none are free.
    """
    first = zlib.crc32(name.encode())
    held = socket.socket(socket.AF_UNIX)
    for number in range(_BLOCKS):
        block = f"127.{64 + (first + number) % _BLOCKS}"
        with suppress(OSError):
            held.bind(f"\0kueuelib-node-{block}")
            return block, held
    held.close()
    problem = f"no free addresses for pods: {_BLOCKS} nodes use them all"
    raise ConfigError("127.0.0.0/8", problem, "stop another node")


def _sweep(folder: Path, uids: Any) -> None:
    """Removes the files of pods that are gone."""
    for each in (folder / "pods").glob("*"):
        if each.name not in uids:
            PodFolder(each).remove()


def _emptied(folder: Path) -> None:
    """Removes everything that the node has made."""
    _sweep(folder, ())
    for each in (folder / "pods", folder / "lock"):
        with suppress(OSError):
            each.rmdir() if each.is_dir() else each.unlink()
    with suppress(OSError):
        folder.rmdir()
    if folder.parent == _base_folder():
        with suppress(OSError):
            folder.parent.rmdir()


async def _started(run: Any, *, task_status: Any) -> None:
    """Runs a part of a manager; it has started when it says so."""
    await run(task_status.started)
