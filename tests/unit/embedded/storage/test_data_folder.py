"""State on disk: what was acknowledged is there after any end; damaged folders are refused."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kueuelib.api.kinds import CONFIG_MAPS, CRDS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.server import GAP, new_service
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage import memory
from kueuelib.embedded.storage.folder import DataFolder
from kueuelib.embedded.verbs import WatchOptions
from kueuelib.errors import ConfigError, NotFound, ServerError

BOXES = Resource("test.dev", "v1", "boxes", "Box", namespaced=True)


class NoHooks:
    async def call(self, client: Any, body: Obj, *, seconds: float) -> Obj:
        raise AssertionError("nobody calls webhooks here")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[ApiService]:
    """A service over a folder, ended properly."""
    service = await new_service(NoHooks(), folder=DataFolder(path))
    try:
        yield service
    finally:
        await service.close()


def config_map(name: str, value: str = "1") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"x": value},
    }


def definition(prefix: str = "") -> Obj:
    schema: Obj = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
    if prefix:
        schema["properties"]["spec"]["properties"]["b"] = {"type": "string", "default": prefix}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


async def events(service: ApiService, since: str) -> list[tuple[str, str]]:
    """What a watch tells at once: types with names, or with the code of the failure."""
    found = []
    stream = service.watch(
        CONFIG_MAPS, "default", WatchOptions(resource_version=since, timeout=0.05)
    )
    async for event in stream:
        name = event.object["metadata"].get("name") or str(event.object.get("code"))
        found.append((event.type, name))
    return found


async def test_objects_are_there_again_with_uid_and_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        made = await service.create(CONFIG_MAPS, config_map("a"))
        revision = service.storage.revision
    async with serving(tmp_path) as service:
        assert await service.get(CONFIG_MAPS, key("a")) == made
        assert service.storage.revision == revision
        later = await service.create(CONFIG_MAPS, config_map("b"))
        assert int(later["metadata"]["resourceVersion"]) == revision + 1


async def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await service.create(CONFIG_MAPS, config_map("a"))
        await service.delete(CONFIG_MAPS, key("a"))
    async with serving(tmp_path) as service:
        with pytest.raises(NotFound):
            await service.get(CONFIG_MAPS, key("a"))


async def test_custom_resources_are_served_again(tmp_path: Path) -> None:
    box = {
        "apiVersion": "test.dev/v1",
        "kind": "Box",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"a": 1},
    }
    async with serving(tmp_path) as service:
        await service.create(CRDS, definition())
        await service.create(BOXES, box)
        changed = definition("new")
        stored = await service.get(CRDS, ObjectKey("", "boxes.test.dev"))
        changed["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        await service.update(CRDS, changed)
        before = await service.get(BOXES, key("a"))
        assert before["spec"] == {"a": 1, "b": "new"}
    async with serving(tmp_path) as service:
        assert await service.get(BOXES, key("a")) == before


async def test_tokens_of_accounts_stay_good(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        key_of_tokens = service.tokens.pem
    async with serving(tmp_path) as service:
        assert service.tokens.pem == key_of_tokens


async def test_a_watch_goes_on_after_a_clean_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        made = await service.create(CONFIG_MAPS, config_map("a"))
        await service.update(CONFIG_MAPS, {**made, "data": {"x": "2"}})
        await service.create(CONFIG_MAPS, config_map("b"))
        await service.delete(CONFIG_MAPS, key("b"))
    async with serving(tmp_path) as service:
        found = await events(service, made["metadata"]["resourceVersion"])
        assert found == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")]


async def test_after_a_crash_a_watch_has_to_begin_anew(tmp_path: Path) -> None:
    """Versions that nobody may have acknowledged are never given again."""
    async with serving(tmp_path / "a") as service:
        made = await service.create(CONFIG_MAPS, config_map("a"))
        copied(tmp_path / "a", tmp_path / "b")
        revision = service.storage.revision
    async with serving(tmp_path / "b") as service:
        assert service.storage.revision == revision + GAP
        assert await service.get(CONFIG_MAPS, key("a")) == made
        assert await events(service, str(revision)) == [("ERROR", "410")]
        assert await events(service, str(revision + 1)) == [("ERROR", "410")]
        assert await events(service, str(revision + GAP)) == []


def copied(source: Path, target: Path) -> None:
    """A folder as a killed process would have left it."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != "lock":
            shutil.copy(file, target / file.name)


async def test_old_states_are_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "HISTORY", 10)
    monkeypatch.setattr(memory, "TIDY_EVERY", 20)
    async with serving(tmp_path) as service:
        obj = await service.create(CONFIG_MAPS, config_map("a"))
        first = obj["metadata"]["resourceVersion"]
        for i in range(100):
            obj = await service.update(CONFIG_MAPS, {**obj, "data": {"x": str(i)}})
        for i in range(30):
            await service.create(CONFIG_MAPS, config_map(f"gone-{i}"))
            await service.delete(CONFIG_MAPS, key(f"gone-{i}"))
        assert service.storage.journal is not None
        run = service.storage.journal.folder.database.execute
        async with asyncio.timeout(60):  # a thread does it
            while run("SELECT count(*) FROM states").fetchone()[0] >= 60:
                await asyncio.sleep(0.01)
    with sqlite3.connect(tmp_path / "state.db") as database:
        (rows,) = database.execute("SELECT count(*) FROM states").fetchone()
    database.close()
    assert rows < 60
    async with serving(tmp_path) as service:
        assert await service.get(CONFIG_MAPS, key("a")) == obj
        assert await events(service, first) == [("ERROR", "410")]
        assert len(await events(service, str(service.storage.revision - 4))) == 4


# ---- what cannot work


async def test_a_folder_has_one_server(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(ConfigError, match=r"another server \(process \d+\) uses it"):
            DataFolder(tmp_path)
    DataFolder(tmp_path).close()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no database at all, but long enough to be one" * 100, "cannot be read"), (b"x", "cannot")],
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "state.db").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        DataFolder(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == content


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    with pytest.raises(ConfigError, match="another program"):
        DataFolder(tmp_path)


def test_the_format_of_a_later_version_is_refused(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="has the format 99"):
        DataFolder(tmp_path)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ConfigError, match=str(path)):
        DataFolder(path)


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for i in range(300):
            await service.create(CONFIG_MAPS, config_map(f"a{i}", "x" * 200))
    file = tmp_path / "state.db"
    data = bytearray(file.read_bytes())
    data[8192:40960] = b"\xff" * (40960 - 8192)
    file.write_bytes(data)
    with pytest.raises(ConfigError, match="cannot be read"):
        DataFolder(tmp_path)


async def crashed(path: Path, copy: Path) -> Path:
    """A copy of a folder in the middle of its work, its log not yet in the file."""
    async with serving(path) as service:
        for i in range(30):
            await service.create(CONFIG_MAPS, config_map(f"a{i}"))
        shutil.copytree(path, copy)
    return copy


@pytest.mark.parametrize("gone", [(), ("state.db-wal",), ("latest",)])
@pytest.mark.parametrize("emptied", [True, False])
async def test_a_file_that_lost_everything_is_refused(
    tmp_path: Path, gone: tuple[str, ...], emptied: bool
) -> None:
    copy = await crashed(tmp_path / "folder", tmp_path / "copy")
    for name in gone:
        (copy / name).unlink()
    (copy / "state.db").unlink()
    if emptied:
        (copy / "state.db").touch()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"is empty, and there were records.*restore a copy"):
            DataFolder(copy)


def latest(path: Path) -> tuple[int, int, str]:
    """What was saved, what is on the disk, and the boot of the machine."""
    saved, synced, boot = (path / "latest").read_text().split()
    return int(saved), int(synced), boot


def at_another_boot(path: Path) -> None:
    saved, synced, _ = latest(path)
    (path / "latest").write_text(f"{saved:020d} {synced:020d} another\n")


@pytest.mark.parametrize("zeros", [0, 1])
async def test_lost_records_are_told_after_the_end_of_the_machine(
    tmp_path: Path, zeros: int, caplog: pytest.LogCaptureFixture
) -> None:
    copy = await crashed(tmp_path / "folder", tmp_path / "copy")
    log = copy / "state.db-wal"
    data = log.read_bytes()
    half = len(data) // 2
    log.write_bytes(data[:half] + b"\0" * (len(data) - half) * zeros)
    at_another_boot(copy)
    saved = latest(copy)[0]
    async with serving(copy) as service:
        assert len(service.storage.table("configmaps.")) < 30
        assert service.storage.revision >= saved + GAP
    (told,) = [each for each in caplog.messages if "has lost its latest records" in each]
    assert str(copy / "state.db") in told
    assert f"and {saved} had been saved" in told
    assert f"restore a copy of {copy}" in told
    caplog.clear()
    async with serving(copy):
        assert not caplog.messages


LOST = "ends at resource version .* had been saved.*restore a copy.*remove .*/latest"


def kept(folder: Path) -> dict[str, bytes]:
    """The content of the files that hold records."""
    return {
        name: (folder / name).read_bytes()
        for name in ("state.db", "state.db-wal", "latest")
        if (folder / name).exists() and (folder / name).stat().st_size
    }


@pytest.mark.parametrize("how", ["gone", "empty", "zeros", "noise at the start", "noise later"])
async def test_a_damaged_log_is_refused_until_the_loss_is_accepted(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No end of the process explains it."""
    copy = await crashed(tmp_path / "folder", tmp_path / "copy")
    log = copy / "state.db-wal"
    data = log.read_bytes()
    log.unlink()
    at = {"noise at the start": 3000, "noise later": len(data) * 3 // 4}.get(how)
    if at is not None:
        log.write_bytes(data[:at] + b"\x5a" * 400 + data[at + 400 :])
    elif how != "gone":
        log.write_bytes(b"" if how == "empty" else b"\0" * len(data))
    before = kept(copy)
    for _ in range(2):
        with pytest.raises(ConfigError, match=LOST):
            DataFolder(copy)
        assert kept(copy) == before, "a refused start leaves what can be repaired"
    (copy / "latest").unlink()
    async with serving(copy) as service:
        assert service.storage.table("namespaces.").get(ObjectKey("", "default"))
        assert len(service.storage.table("configmaps.")) < 30
    assert not caplog.messages


async def test_what_was_on_the_disk_is_not_lost_with_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "SYNC_SECONDS", 0.01)
    async with serving(tmp_path / "folder") as service:
        made = await service.create(CONFIG_MAPS, config_map("a"))
        wanted = int(made["metadata"]["resourceVersion"])
        async with asyncio.timeout(60):  # a thread does it
            while latest(tmp_path / "folder")[1] < wanted:
                await asyncio.sleep(0.01)
        shutil.copytree(tmp_path / "folder", tmp_path / "copy")
    at_another_boot(tmp_path / "copy")
    (tmp_path / "copy" / "state.db-wal").unlink()
    with pytest.raises(ConfigError, match=LOST):
        DataFolder(tmp_path / "copy")


async def test_a_disk_that_refuses_is_asked_again_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "SYNC_SECONDS", 0.01)
    calls, sync = [], DataFolder.sync

    def refuse(folder: DataFolder, revision: int) -> None:
        calls.append(revision)
        if len(calls) <= 3:
            raise OSError("no answer from the disk")
        sync(folder, revision)

    monkeypatch.setattr(DataFolder, "sync", refuse)
    async with serving(tmp_path) as service:
        await service.create(CONFIG_MAPS, config_map("a"))
        wanted = service.storage.revision
        async with asyncio.timeout(60):  # a thread does it
            while latest(tmp_path)[1] < wanted:
                await asyncio.sleep(0.01)
    assert len(calls) >= 4
    told = "the disk refuses the latest changes: no answer from the disk"
    told += "; a power failure may lose them; trying again"
    assert caplog.messages == [f"{tmp_path}: {told}"]


@pytest.mark.parametrize("text", ["9" * 400, "9" * 19, "xx", "1 xx", "-1"])
async def test_a_mark_that_is_no_resource_version_is_named(tmp_path: Path, text: str) -> None:
    async with serving(tmp_path):
        pass
    (tmp_path / "latest").write_text(text)
    with pytest.raises(ConfigError, match="holds no resource version: '.*restore a copy") as caught:
        DataFolder(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'latest'}: ")
    assert len(str(caught.value)) < 300 + 2 * len(str(tmp_path))


async def restarted(path: Path, *, crashes: bool) -> Path:
    """A folder after several servers."""
    for i in range(3):
        after = path.with_name(f"{path.name}-{i}")
        async with serving(path) as service:
            for j in range(5):
                await service.create(CONFIG_MAPS, config_map(f"a{i}-{j}"))
            copied(path, after)
        if crashes:
            path = after
    return path


@pytest.mark.parametrize("crashes", [True, False])
async def test_restarts_leave_no_gap(tmp_path: Path, *, crashes: bool) -> None:
    path = await restarted(tmp_path / "folder", crashes=crashes)
    async with serving(path) as service:
        assert len(service.storage.table("configmaps.")) == 15
        assert (service.storage.revision > 2 * GAP) is crashes


async def test_nothing_is_told_when_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = await crashed(tmp_path / "folder", tmp_path / "copy")
    for folder in (copy, tmp_path / "folder"):
        async with serving(folder) as service:
            assert len(service.storage.table("configmaps.")) >= 30
    assert not caplog.messages


async def test_an_object_that_is_no_json_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await service.create(CONFIG_MAPS, config_map("a"))
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("UPDATE states SET raw = 'not json' WHERE name = 'a'")
    database.close()
    folder = DataFolder(tmp_path)
    with pytest.raises(ConfigError, match="holds an object that cannot be read"):
        await new_service(NoHooks(), folder=folder)
    folder.close()


async def fill(service: ApiService) -> None:
    for i in range(100):
        await service.create(CONFIG_MAPS, config_map(f"a{i}", "x" * 1000))


async def test_a_full_disk_fails_writes_until_there_is_room(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        assert service.storage.journal is not None
        run = service.storage.journal.folder.database.execute
        (pages,) = run("PRAGMA page_count").fetchone()
        run(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ServerError, match="cannot be saved.*full"):
            await fill(service)
        table = service.storage.table("configmaps.")
        before, revision = len(table), service.storage.revision
        watch = service.watch(CONFIG_MAPS, "", WatchOptions(resource_version=str(revision)))
        for _ in range(5):
            with pytest.raises(ServerError, match="cannot be saved.*full"):
                await service.create(CONFIG_MAPS, config_map("refused", "x" * 5000))
        assert (len(table), service.storage.revision) == (before, revision)
        with pytest.raises(NotFound):
            await service.get(CONFIG_MAPS, key("refused"))
        run("PRAGMA max_page_count = 1000000")
        await service.create(CONFIG_MAPS, config_map("accepted"))
        async with watch, asyncio.timeout(10):
            first = await anext(aiter(watch))
        assert first.object["metadata"]["name"] == "accepted"
        names = {entry.key.name for entry in table.entries()}
    async with serving(tmp_path) as service:
        assert names == {entry.key.name for entry in service.storage.table("configmaps.").entries()}


@pytest.mark.parametrize("name", ["lock", "latest", "state.db"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=f"{tmp_path / name}: Is a directory"):
        DataFolder(tmp_path)


def test_a_journal_that_is_closed_at_the_end_of_a_pause_ends(tmp_path: Path) -> None:
    journal = memory.Journal(DataFolder(tmp_path / "data"))

    def overtaken(_: float) -> bool:
        journal._closing.set()
        journal._due.set()
        return False

    journal._closing.wait = overtaken  # type: ignore[assignment,method-assign]
    journal._due.set()
    journal._thread.join(10.0)
    assert not journal._thread.is_alive()
    journal.folder.close()
