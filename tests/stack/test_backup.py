"""Backup and restore on real servers: what comes back equals what was kept, or nothing changes at all."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.pages.make_run import make_run
from webapp.stack import backup_file, restore
from webapp.stack.application import application_environment
from webapp.stack.backup import backup
from webapp.stack.backup_file import Manifest, unpack, writing
from webapp.stack.errors import StackError
from webapp.stack.paths import REPOSITORY, Home
from webapp.stack.postgres import FAST_AND_UNSAFE, postgres_server
from webapp.stack.serving import start_service
from webapp.stack.valkey import valkey_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Tables a restore adds to: what it did to runs that were at work, and that it happened.
WRITTEN_TO = {"runs_run", "runs_attempt", "runs_event", "runs_runtransition", "accounts_auditentry"}


def say(_text: str) -> None:
    pass


@contextmanager
def servers(home: Home) -> Iterator[dict[str, str]]:
    """PostgreSQL and Valkey of a data directory; yields the variables of the application."""
    with ExitStack() as cleanup:
        broker, database = valkey_server(home, durable=False), postgres_server(home, settings=FAST_AND_UNSAFE)
        start_service(broker.service(), home, cleanup)
        database.ensure_cluster(sync=False)
        start_service(database.service(), home, cleanup)
        database.ensure_database()
        yield application_environment(home, database_url=database.url, redis_url=broker.url, port=8400)


def manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, str(REPOSITORY / "manage.py"), *arguments]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_home(root: Path) -> Home:
    root.parent.chmod(0o711)  # without user namespaces, root's PostgreSQL runs as another user
    home = Home(root)
    home.create()
    home.root.chmod(0o711)
    return home


@pytest.fixture(scope="module", autouse=True)
def own_services() -> Iterator[None]:
    """No DATABASE_URL or REDIS_URL of the session's own throw-away servers."""
    kept = {name: os.environ.pop(name, None) for name in ("DATABASE_URL", "REDIS_URL", "SPADEWORK_SECRET_KEY_FILE")}
    yield
    os.environ.update({name: value for name, value in kept.items() if value is not None})


@pytest.fixture(scope="module")
def old_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """An installation with people, a finished run, one at work whose files know more than its rows, one that waits, and a pool."""
    root = tmp_path_factory.mktemp("old")
    home = make_home(root / "home")
    for name in ("done", "busy", "waiting"):
        seed = {"done": 1, "busy": 2, "waiting": 3}[name]
        make_run(root / name, rollouts=2, environments=2, plays=2, seed=seed, finish="completed" if name == "done" else None,
                 total=4, start=1_790_000_000.0 + seed)  # fmt: skip
        for number in ("000001", "000002"):
            folder = root / name / "checkpoints" / number
            (folder / "model").mkdir(parents=True)
            (folder / "model" / "weights.safetensors").write_bytes(os.urandom(10_000))
            (folder / "COMPLETE").write_text("{}")
    half = root / "busy" / "checkpoints" / ".aside-000003"
    half.mkdir()
    (half / "weights").write_bytes(b"half")
    with servers(home) as environment:
        manage(environment, "migrate", "--verbosity=0")
        manage(environment, "demo_link")
        for name in ("done", "busy", "waiting"):
            manage(environment, "import_run", str(root / name), "--copy", "everything")
        with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
            connection.execute("UPDATE runs_run SET imported_from = ''")
            connection.execute(
                "UPDATE runs_run SET status = 'running', lease = gen_random_uuid(), gpu_set = 'here', heartbeat_at = now() "
                "WHERE name = 'busy'"
            )
            connection.execute("UPDATE runs_run SET status = 'queued', queued_at = now() WHERE name = 'waiting'")
            connection.execute(
                "UPDATE runs_run SET config = jsonb_set(config, '{corpus,path}', to_jsonb(%s::text))",
                [f"{home.root}/corpora/tanks"],
            )
            (slug,) = connection.execute("SELECT slug FROM runs_run WHERE name = 'busy'").fetchone() or ("",)
    log = next((home.runs / slug / "attempts" / "1" / "events").glob("*1.jsonl"))
    last = json.loads(log.read_text().splitlines()[-1])
    later = {**last, "seq": last["seq"] + 1, "kind": "warning", "payload": {"message": "written after the snapshot"}}
    log.write_text(log.read_text() + json.dumps(later) + "\n" + '{"seq": 99')
    (home.root / "pools").mkdir()
    (home.root / "pools" / "1.tar").write_bytes(b"a pool")
    (home.root / "corpora").mkdir()
    (home.root / "corpora" / "tanks").write_text("Water flows.")
    (home.root / "corpora" / "link").symlink_to("/etc/passwd")
    return home


@pytest.fixture(scope="module")
def kept(old_home: Home) -> Path:
    target = old_home.root.parent / "all.tar.gz"
    backup(old_home, target, say=say)
    return target


@pytest.fixture
def new_home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "new" / "home") if (tmp_path / "new").mkdir() is None else Home(tmp_path)


def tables(home: Home) -> dict[str, list[str]]:
    """Every table's rows as sorted JSON."""
    with servers(home) as environment, psycopg.connect(environment["DATABASE_URL"]) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        found = {}
        for (name,) in names:
            query = sql.SQL("SELECT to_jsonb(one)::text FROM {} one").format(sql.Identifier(name))
            found[str(name)] = sorted(row[0] for row in connection.execute(query).fetchall())
        return found


def files(home: Home) -> dict[str, str]:
    kept = (path for name in ("runs", "pools", "corpora") for path in (home.root / name).rglob("*"))
    return {
        str(path.relative_to(home.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in kept if path.is_file() and not path.is_symlink()
    }  # fmt: skip


def test_everything_comes_back_in_a_fresh_home_and_runs_at_work_can_be_resumed(
    old_home: Home, kept: Path, new_home: Home
) -> None:
    assert (kept.stat().st_mode & 0o777, list(kept.parent.glob("*.part"))) == (0o600, [])
    before = tables(old_home)
    manifest = restore.restore(new_home, kept, replace=False, say=say)
    after = tables(new_home)
    assert set(after) == set(before)
    for name, rows in before.items():
        if name == "alerts_alert":  # the restore says which runs it ended
            assert set(rows) <= set(after[name])
        elif name not in WRITTEN_TO:
            assert after[name] == rows, name
    assert manifest.left_out == [str(old_home.root / "corpora" / "link")]
    old_files, new_files = files(old_home), files(new_home)
    configs = {name for name in old_files if name.endswith("config.json")}
    half = {name for name in old_files if ".aside-" in name}
    assert {name: new_files[name] for name in old_files if name not in configs | half} == {
        name: old_files[name] for name in old_files if name not in configs | half
    }
    assert set(old_files) - set(new_files) == half
    runs = {run["name"]: run for run in map(json.loads, after["runs_run"])}
    assert {name: run["status"] for name, run in runs.items()} == {
        "done": "completed",
        "busy": "lost",
        "waiting": "stopped",
    }
    assert "was running" in runs["busy"]["failure_message"]
    assert runs["busy"]["lease"] is None
    for run in runs.values():
        assert Path(run["directory"]).parent == new_home.runs
        assert run["config"]["corpus"]["path"] == f"{new_home.root}/corpora/tanks"
    events = [json.loads(row)["payload"] for row in after["runs_event"]]
    assert {"message": "written after the snapshot"} in [{"message": one.get("message")} for one in events]
    assert any(json.loads(row)["action"] == "backup.restored" for row in after["accounts_auditentry"])
    assert not [path.name for path in new_home.root.iterdir() if path.name.startswith("restore.")]
    restore.refuse_cut_short(new_home)


@pytest.mark.parametrize(("which", "expected"), [("newest", {"000002"}), ("none", set())])
def test_fewer_checkpoints_are_an_option(old_home: Home, tmp_path: Path, which: Any, expected: set[str]) -> None:
    manifest = backup(old_home, tmp_path / "some.tar", checkpoints=which, say=say)
    names = {
        entry.name.split("/checkpoints/")[1].split("/")[0] for entry in manifest.files if "/checkpoints/" in entry.name
    }
    assert names == expected
    assert unpack(tmp_path / "some.tar", None).checkpoints == which


def test_what_is_there_is_given_up_only_when_told(old_home: Home, kept: Path, new_home: Home) -> None:
    restore.restore(new_home, kept, replace=False, say=say)
    (new_home.root / "pools" / "mine.tar").write_bytes(b"mine")
    with pytest.raises(StackError, match="add --replace"):
        restore.restore(new_home, kept, replace=False, say=say)
    assert (new_home.root / "pools" / "mine.tar").exists()
    restore.restore(new_home, kept, replace=True, say=say)
    assert not (new_home.root / "pools" / "mine.tar").exists()
    assert files(new_home).keys() == {name for name in files(old_home) if ".aside-" not in name}


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_restore_that_fails_or_is_killed_changes_nothing(
    kept: Path, new_home: Home, monkeypatch: pytest.MonkeyPatch, cut_short: bool
) -> None:
    restore.restore(new_home, kept, replace=False, say=say)
    (new_home.root / "pools" / "mine.tar").write_bytes(b"mine")
    before = (tables(new_home), files(new_home))

    def fail(_home: Home, _url: str, *arguments: str) -> None:
        raise StackError(f"manage.py {arguments[0]} failed: no")

    with monkeypatch.context() as patched:
        patched.setattr(restore, "_manage", fail)
        if cut_short:
            patched.setattr(restore._Place, "put_back", lambda _self: None)
            patched.setattr(restore.shutil, "rmtree", lambda *_args, **_options: None)
        with pytest.raises(StackError, match="migrate failed: no"):
            restore.restore(new_home, kept, replace=True, say=say)
    if cut_short:
        assert not (new_home.root / "pools" / "mine.tar").exists()
        with pytest.raises(StackError, match="was cut short"):
            restore.refuse_cut_short(new_home)
        with pytest.raises(StackError, match="add --replace"):  # what was there is back, so it is in the way again
            restore.restore(new_home, kept, replace=False, say=say)
    assert (tables(new_home), files(new_home)) == before
    restore.refuse_cut_short(new_home)


def test_another_servers_database_is_kept_and_restored(
    old_home: Home, kept: Path, new_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers(make_home(tmp_path / "server")) as environment:
        url = environment["DATABASE_URL"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE elsewhere")
        monkeypatch.setenv("DATABASE_URL", url.replace("/spadework?", "/elsewhere?"))
        restore.restore(new_home, kept, replace=False, say=say)
        assert not (new_home.postgres / "data").exists()
        backup(new_home, tmp_path / "again.tar", say=say)
        busy = psycopg.connect(os.environ["DATABASE_URL"], application_name="spadework")
        with busy, pytest.raises(StackError, match="1 connections to the database"):
            restore.restore(new_home, tmp_path / "again.tar", replace=True, say=say)
    assert unpack(tmp_path / "again.tar", None).home == str(new_home.root)


# Files that are no backup, or no longer the one that was made -------------------------------------------------------


def small_backup(target: Path, **changes: Any) -> None:
    values = {
        "made_at": "2026-01-01T00:00:00+00:00",
        "home": "/old",
        "checkpoints": "all",
        "postgres": 18,
        "schema": [],
    }
    with writing(target, Manifest(**{**values, **changes})) as writer:
        source = target.with_name("source")
        source.write_bytes(b"x" * 5_000)
        writer.add(source, "database.dump")
        writer.add(source, "home/pools/1.tar")
        writer.add(target.with_name("gone"), "home/pools/2.tar")


def repack(target: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> None:
    with tarfile.open(target) as archive:
        members = [(member, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]
    change(members)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def flipped(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[1] = (members[1][0], b"y" + members[1][1][1:])


def escaping(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[1][0].name = "home/../../escaped"


def absolute(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[1][0].name = "/tmp/escaped"


def linked(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[1][0].type, members[1][0].linkname = tarfile.SYMTYPE, "/etc/passwd"


def smuggled(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.insert(1, (tarfile.TarInfo("home/secrets/secret_key"), b"known to me"))


def missing(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[1]


def unsigned(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[-1] = (members[-1][0], members[-1][1].replace(b"/old", b"/new"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flipped, "is not what the manifest says"), (escaping, "leads out of the data directory"),
        (absolute, "leads out of the data directory"), (linked, "which no backup holds"), (smuggled, "is not what"),
        (missing, "home/pools/1.tar is not what"), (unsigned, "does not have its checksum"),
    ],
)  # fmt: skip
def test_a_changed_backup_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    target = tmp_path / "small.tar"
    small_backup(target)
    repack(target, change)
    with pytest.raises(StackError, match=words):
        unpack(target, tmp_path / "unpacked")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("name", ["small.tar", "small.tar.gz"])
def test_a_backup_cut_short_is_refused_wherever_it_was_cut(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    small_backup(target)
    assert [entry.bytes for entry in unpack(target, None).files] == [5_000, 5_000]
    assert unpack(target, None).left_out == ["home/pools/2.tar"]
    whole = target.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) * 9 // 10 if name.endswith("gz") else 13_000):
        target.write_bytes(whole[:size])
        with pytest.raises(StackError, match="no backup, or was cut short"):
            unpack(target, None)
    target.write_text("hello")
    with pytest.raises(StackError, match="no backup"):
        unpack(target, None)


def test_a_backup_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    small_backup(tmp_path / "newer.tar", format=2)
    with pytest.raises(StackError, match="has format 2 and this version reads 1"):
        unpack(tmp_path / "newer.tar", None)
    small_backup(tmp_path / "later.tar", schema=[["runs", "0999_later"], ["auth", "0001_initial"]])
    with pytest.raises(StackError, match=r"migration runs\.0999_later"):
        restore._refuse_newer(unpack(tmp_path / "later.tar", None), tmp_path / "later.tar")


def test_a_file_that_shrinks_while_it_is_read_counts_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is asked, then it is truncated, as the trainer does with a torn line."""
    real = os.fstat

    def longer(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        return os.stat_result([*status[:6], status.st_size + 700, *status[7:]])

    monkeypatch.setattr(backup_file.os, "fstat", longer)
    small_backup(tmp_path / "small.tar")
    monkeypatch.undo()
    manifest = unpack(tmp_path / "small.tar", tmp_path / "unpacked")
    assert [entry.bytes for entry in manifest.files] == [5_000, 5_000]
    assert (tmp_path / "unpacked" / "home" / "pools" / "1.tar").read_bytes() == b"x" * 5_000


def test_nothing_is_left_of_a_backup_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "some" / "home") if (tmp_path / "some").mkdir() is None else Home(tmp_path)
    with pytest.raises(StackError, match="nothing was ever started there"):
        backup(home, tmp_path / "one.tar", say=say)
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(StackError, match="does not answer"):
        backup(home, tmp_path / "one.tar", say=say)
    with pytest.raises(RuntimeError), writing(tmp_path / "one.tar", Manifest(
        made_at="", home="", checkpoints="all", postgres=18, schema=[])):  # fmt: skip
        raise RuntimeError("in the middle")
    assert not list(tmp_path.glob("one.tar*"))
    (tmp_path / "one.tar").write_text("precious")
    with pytest.raises(StackError, match="exists"):
        backup(home, tmp_path / "one.tar", say=say)
    assert (tmp_path / "one.tar").read_text() == "precious"
    shutil.rmtree(home.root)
