"""Taking in run directories made elsewhere: checked first, once, and only what is new the next time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.runs.eventwriter import EventWriter
from trainer.config import RunConfig
from webapp.accounts.models import AuditEntry
from webapp.episodes.models import Episode
from webapp.runs import import_check, services
from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying
from webapp.runs.importing import import_run
from webapp.runs.models import Event, Run, RunTransition

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_home(settings: Any, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path / "home"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


def make_run(root: Path, rollouts: int = 2) -> EventWriter:
    root.mkdir(parents=True)
    frozen = {"config": RunConfig().model_dump(mode="json"), "format_version": 1}
    (root / "config.json").write_text(json.dumps(frozen))
    (root / "log.txt").write_text("started\n")
    checkpoint = root / "checkpoints" / "000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "COMPLETE").write_text("{}")
    (checkpoint / "model.safetensors").write_bytes(b"weights" * 100)
    writer = EventWriter(root)
    writer.start()
    writer.rollouts(range(rollouts))
    return writer


def end(writer: EventWriter, state: str = "stopped") -> None:
    writer.emit("run_state", state=state)


def test_the_same_directory_again_brings_nothing_new(elsewhere: Path) -> None:
    end(make_run(elsewhere))
    run = import_run(actor=None, directory=elsewhere)
    before = (run.last_cursor, run.status, Event.objects.count(), AuditEntry.objects.count())
    again = import_run(actor=None, directory=elsewhere)
    assert again.pk == run.pk
    assert (again.last_cursor, again.status, Event.objects.count(), AuditEntry.objects.count()) == before
    assert before[1] == "stopped"
    assert RunTransition.objects.filter(run=run).count() == 1


def test_a_continued_directory_brings_only_the_new_events(elsewhere: Path) -> None:
    writer = make_run(elsewhere)
    end(writer)
    run = import_run(actor=None, directory=elsewhere)
    old = set(Event.objects.filter(run=run).values_list("pk", flat=True))
    resumed = EventWriter(elsewhere, attempt=2)
    resumed.start(start_rollout=2)
    resumed.rollouts(range(2, 4))
    end(resumed, "completed")
    run = import_run(actor=None, directory=elsewhere)
    assert (run.status, run.rollouts_done, run.attempt) == ("completed", 4, 2)
    assert old < set(Event.objects.filter(run=run).values_list("pk", flat=True))
    assert Event.objects.filter(run=run, attempt=2).count() == resumed.seq
    assert Episode.objects.filter(run=run).count() == 16
    assert run.finished_at == run.last_event_at


def test_how_the_end_of_a_run_of_ours_was_seen_is_not_judged_again(elsewhere: Path) -> None:
    make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere)
    Run.objects.filter(pk=run.pk).update(status="failed")
    assert import_run(actor=None, directory=elsewhere).status == "failed"


def test_a_copy_is_kept_among_our_own_runs_and_follows_the_original(elsewhere: Path, tmp_path: Path) -> None:
    writer = make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere, copying=Copying.RECORDS)
    copy = Path(run.directory)
    assert copy.parent == tmp_path / "home" / "runs"
    assert (copy / "log.txt").read_text() == "started\n"
    assert not (copy / "checkpoints").exists()
    with pytest.raises(ActRefused, match="without its checkpoints"):
        services.resume_run(actor=run.owner, run_id=run.pk)
    writer.rollouts(range(2, 3))
    run = import_run(actor=None, directory=elsewhere, copying=Copying.EVERYTHING)
    assert run.rollouts_done == 3
    assert (copy / "checkpoints" / "000002" / "model.safetensors").read_bytes() == b"weights" * 100
    (elsewhere / "checkpoints" / "000002").rename(elsewhere / "checkpoints" / "000003")
    import_run(actor=None, directory=elsewhere, copying=Copying.EVERYTHING)
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["000003"]
    assert not list(copy.rglob("*.part"))


def test_a_copied_run_found_in_another_place_is_the_same_run(elsewhere: Path, tmp_path: Path) -> None:
    writer = make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere, copying=Copying.RECORDS)
    writer.rollouts(range(2, 3))
    elsewhere.rename(tmp_path / "moved")
    assert import_run(actor=None, directory=tmp_path / "moved").pk == run.pk
    assert Run.objects.get().rollouts_done == 3


def test_a_copy_of_a_run_that_is_shown_from_its_place_is_refused_by_name(elsewhere: Path, tmp_path: Path) -> None:
    make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere)
    os.system(f"cp -r {elsewhere} {tmp_path / 'twin'}")
    with pytest.raises(ActRefused, match=rf"is a copy of {run}, which lies in {elsewhere}"):
        import_run(actor=None, directory=tmp_path / "twin")


def test_another_run_in_the_same_place_is_not_joined_to_the_first(elsewhere: Path, tmp_path: Path) -> None:
    make_run(elsewhere)
    import_run(actor=None, directory=elsewhere)
    elsewhere.rename(tmp_path / "old")
    make_run(elsewhere)
    with pytest.raises(ActRefused, match="now holds another run"):
        import_run(actor=None, directory=elsewhere)


def test_a_copy_that_was_resumed_here_takes_nothing_more(elsewhere: Path) -> None:
    make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere, copying=Copying.EVERYTHING)
    run.attempts.create(number=2, host="here")
    with pytest.raises(ActRefused, match="went on here"):
        import_run(actor=None, directory=elsewhere, copying=Copying.EVERYTHING)


def test_an_import_that_was_cut_short_cannot_be_started_and_is_completed_by_the_next(
    elsewhere: Path, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(make_run(elsewhere))

    def die(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webapp.runs.eventlog.BATCH_LINES", 10)
    with pytest.raises(KeyboardInterrupt):
        import_run(actor=operator, directory=elsewhere, progress=die)
    run = Run.objects.get()
    assert run.status == "draft"
    with pytest.raises(ActRefused, match="is being imported"):
        services.start_run(actor=operator, run_id=run.pk)
    seen: list[tuple[int, int]] = []
    import_run(actor=operator, directory=elsewhere, progress=lambda *counts: seen.append(counts))
    run.refresh_from_db()
    assert (run.status, run.rollouts_done) == ("stopped", 2)
    assert seen[-1][0] == seen[-1][1] - 10


# What is refused ---------------------------------------------------------------------------------------------------


def strange_link(root: Path) -> None:
    (root / "log.txt").unlink()
    (root / "log.txt").symlink_to("/etc/passwd")


def linked_folder(root: Path) -> None:
    (root / "attempts").rename(root.parent / "attempts-away")
    (root / "attempts").symlink_to(root.parent / "attempts-away")


def fifo(root: Path) -> None:
    os.mkfifo(root / "tensors.pipe")


def newer_format(root: Path) -> None:
    frozen = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps({**frozen, "format_version": 2}))


def unknown_setting(root: Path) -> None:
    frozen = json.loads((root / "config.json").read_text())
    frozen["config"]["schedule"]["rolouts"] = 3
    (root / "config.json").write_text(json.dumps(frozen))


def no_settings(root: Path) -> None:
    (root / "config.json").unlink()


def broken_settings(root: Path) -> None:
    (root / "config.json").write_text('{"format_version": 1, "config"')


def hole(root: Path) -> None:
    path = next((root / "attempts/1/events").glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[5:]))


def garbage(root: Path) -> None:
    path = next((root / "attempts/1/events").glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\x00\x00\x00\n", *lines[3:]]))


def misfit(root: Path) -> None:
    path = next((root / "attempts/1/events").glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b'"state": "running"', b'"state": "dreaming"', 1))


def no_log(root: Path) -> None:
    (root / "attempts").rename(root / "tries")


def mixed_up(root: Path) -> None:
    (root / "attempts/1").rename(root / "attempts/2")


def odd_number(root: Path) -> None:
    (root / "attempts/1").rename(root / "attempts/01")


def another_log(root: Path) -> None:
    path = next((root / "attempts/1/events").glob("*.jsonl"))
    path.write_bytes(b'{"seq": 1, "time": 1.0, "rollout": null, "kind": "step", "payload": {}}\n')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (strange_link, "log.txt is a symbolic link"),
        (linked_folder, "attempts is a symbolic link"),
        (fifo, "tensors.pipe is neither a file nor a folder"),
        (newer_format, "format 2 and this Spadework reads format 1"),
        (unknown_setting, "schedule.rolouts"),
        (no_settings, "it has no config.json"),
        (broken_settings, "cannot be understood"),
        (hole, "attempt 1: events 4 to 5 are missing"),
        (garbage, "attempt 1, after event 3: not an event"),
        (misfit, "does not fit run_state"),
        (no_log, "holds no events"),
        (mixed_up, "says that it is of attempt 1"),
        (odd_number, "is not called as an attempt is"),
        (another_log, "does not begin with run_started but with 'step'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    elsewhere: Path, spoil: Callable[[Path], None], words: str
) -> None:
    make_run(elsewhere)
    spoil(elsewhere)
    with pytest.raises(ActRefused, match=words):
        import_run(actor=None, directory=elsewhere)
    assert not Run.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_damaged_log_is_taken_in_when_asked_and_says_what_is_missing(elsewhere: Path) -> None:
    make_run(elsewhere)
    hole(elsewhere)
    run = import_run(actor=None, directory=elsewhere, accept_damage=True)
    assert run.gap
    warning = Event.objects.get(run=run, kind="ingest_warning")
    assert "events 4 to 5 are missing" in warning.payload["message"]


def test_a_torn_last_line_is_left_out_and_said(elsewhere: Path) -> None:
    writer = make_run(elsewhere)
    writer.raw('{"seq": 999, "time": 1.')
    run = import_run(actor=None, directory=elsewhere)
    assert (run.status, run.gap) == ("lost", False)
    warning = Event.objects.get(run=run, kind="ingest_warning")
    assert "23 bytes" in warning.payload["message"]


@pytest.mark.django_db(transaction=True)
def test_two_imports_of_one_run_at_the_same_moment_make_one_run(elsewhere: Path, tmp_path: Path) -> None:
    end(make_run(elsewhere))
    shutil.copytree(elsewhere, tmp_path / "copy")
    refused: list[str] = []

    def try_too(_done: int, _total: int) -> None:
        def of(directory: Path) -> None:
            try:
                import_run(actor=None, directory=directory)
            except ActRefused as error:
                refused.append(str(error))
            finally:
                connection.close()

        for directory in (elsewhere, tmp_path / "copy"):
            other = threading.Thread(target=of, args=[directory])
            other.start()
            other.join()

    run = import_run(actor=None, directory=elsewhere, progress=try_too)
    assert list(Run.objects.all()) == [run]
    assert len(refused) >= 2 and all("is being imported right now" in text for text in refused), refused
    assert import_run(actor=None, directory=elsewhere) == run  # nothing is held for longer than the import


def test_a_directory_a_trainer_works_in_is_refused(elsewhere: Path) -> None:
    make_run(elsewhere)
    with (elsewhere / "trainer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ActRefused, match="a trainer is at work"):
            import_run(actor=None, directory=elsewhere)
    assert import_run(actor=None, directory=elsewhere).rollouts_done == 2


def test_a_run_that_waits_here_or_is_deleted_is_left_alone(elsewhere: Path) -> None:
    make_run(elsewhere)
    run = import_run(actor=None, directory=elsewhere)
    Run.objects.filter(pk=run.pk).update(status="queued")
    with pytest.raises(ActRefused, match="is queued"):
        import_run(actor=None, directory=elsewhere)
    Run.objects.filter(pk=run.pk).update(status="lost", deleted_at=run.created_at)
    with pytest.raises(ActRefused, match="is deleted; restore it first"):
        import_run(actor=None, directory=elsewhere)


def test_a_copy_that_does_not_fit_the_disk_is_refused(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(elsewhere)
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr("webapp.runs.import_copy.shutil.os.statvfs", lambda _path: full)
    with pytest.raises(ActRefused, match="0 are free"):
        import_run(actor=None, directory=elsewhere, copying=Copying.EVERYTHING)


def test_settings_of_any_size_are_not_read_into_memory(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(elsewhere)
    monkeypatch.setattr(import_check, "CONFIG_BYTES", 100)
    with pytest.raises(ActRefused, match="far smaller"):
        import_run(actor=None, directory=elsewhere)
