"""The folder of a pod on the node: its home, volumes and logs, for its owner only."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import attrs

from kueuelib.node.environment import ContainerConfigError, Files

_OWNER_ONLY: Final = 0o700


@attrs.frozen
class PodFolder:
    """Where the files of one pod are; `root` is made when something is put there."""

    root: Path

    def folder(self, *names: str) -> Path:
        """A folder in it, which exists; names have no slashes."""
        path = self.root.joinpath(*names)
        path.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        return path

    def log(self, container: str, run: int) -> Path:
        """The log of a run of a container."""
        return self.root / "logs" / container / f"{run}.log"

    def drop_logs(self, container: str, before: int) -> None:
        """Removes the logs of runs before one."""
        for each in (self.root / "logs" / container).glob("*.log*"):
            if int(each.name.partition(".")[0]) < before:
                each.unlink(missing_ok=True)

    def message(self, container: str) -> Path:
        """The file of the termination message, emptied."""
        path = self.folder("messages") / container
        path.write_bytes(b"")
        return path

    def text(self, name: str, content: str) -> Path:
        """A file that containers may read; written in place, because it is mounted."""
        path = self.folder("files") / name
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
        return path

    def put(self, name: str, files: Files) -> Path:
        """The folder of a volume with these files and no others, each replaced in one step."""
        root = self.folder("volumes", name)
        present = {str(each.relative_to(root)) for each in root.rglob("*") if each.is_file()}
        for each in present - files.keys():
            (root / each).unlink()
        for relative, (content, mode) in files.items():
            path = inside(root, relative)
            if path.is_file() and path.read_bytes() == content:
                continue
            path.parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.draft")
            draft.write_bytes(content)
            draft.chmod(mode & 0o777)
            draft.replace(path)
        return root

    def remove(self) -> None:
        """Removes all of it, also folders that the pod has made unreadable."""

        def again(remove: Callable[..., Any], path: str, _: Any) -> None:
            parent = os.path.dirname(path)  # noqa: PTH120 - what rmtree gives
            for each in (parent, path):
                if stat.S_ISDIR(os.lstat(each).st_mode):
                    os.chmod(each, _OWNER_ONLY, follow_symlinks=False)  # noqa: PTH101 - the same
            if remove in (os.unlink, os.rmdir):
                remove(path)
            else:
                shutil.rmtree(path)

        if self.root.exists():
            shutil.rmtree(self.root, onerror=again)


def inside(folder: Path, relative: str) -> Path:
    """A path below a folder that has no links in it.

    Raises:
        ContainerConfigError: it would leave the folder.
    """
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts:
        raise ContainerConfigError(f"the path {relative!r} leaves its volume {folder.name}")
    return folder / path


def hosts_file(address: str, hostname: str, aliases: Any, services: Mapping[str, str]) -> str:
    """The text of `/etc/hosts` of a pod.

    Args:
        address: of the pod.
        hostname: of the pod.
        aliases: the `hostAliases` of the pod.
        services: addresses by name.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost", f"{address} {hostname}"]
    lines += [f"{each['ip']} {' '.join(each.get('hostnames') or ())}" for each in aliases or ()]
    lines += [f"{at} {name}" for name, at in sorted(services.items())]
    return "\n".join(lines) + "\n"
