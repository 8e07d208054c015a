"""A run whose texts, log and token files retention removed is imported again: what was removed stays removed, what is new comes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.keeping.test_text_retention import said, with_text
from tests.pages.make_run import Maker
from tests.pages.synthetic import synthetic_config
from webapp.accounts.models import AuditEntry
from webapp.episodes.models import Transcript
from webapp.runs.housekeeping import purge
from webapp.runs.import_copy import Copying
from webapp.runs.importing import import_run
from webapp.runs.models import Retention, Run

pytestmark = pytest.mark.django_db
DAY_S = 86_400


@pytest.fixture(autouse=True)
def own_home(settings: object, tmp_path: Path) -> None:
    settings.SPADEWORK_HOME = tmp_path / "home"  # type: ignore[attr-defined]


@pytest.fixture
def source(tmp_path: Path) -> Maker:
    """A run that was stopped 20 days ago somewhere else, with a printed log and token files of that time."""
    started = time.time() - 20 * DAY_S
    maker = Maker(tmp_path / "elsewhere", synthetic_config(rollouts=6, environments=2, plays=2), seed=7, start=started)
    maker.attempt(1, 0, 2, finish="stopped")
    root = tmp_path / "elsewhere"
    (root / "tensors").mkdir(exist_ok=True)
    (root / "tensors" / "000000.safetensors").write_bytes(b"ids")
    for path in [root / "log.txt", *root.glob("tensors/*")]:
        os.utime(path, (started, started))
    return maker


@pytest.fixture
def again(tmp_path: Path) -> Callable[[], Run]:
    return lambda: import_run(actor=None, directory=tmp_path / "elsewhere", copying=Copying.RECORDS)


def gone_through(run: Run) -> Run:
    """The copy, after retention has been through it."""
    assert said(run)
    Retention.objects.create(pk=1, transcript_days=14, log_days=14, tensor_days=14)
    purge()
    run.refresh_from_db()
    assert (said(run), with_text(run).exists(), removed_files(run)) == ([], False, [])
    return run


@pytest.fixture
def purged(source: Maker, again: Callable[[], Run]) -> Run:
    return gone_through(again())


@pytest.fixture
def grown(source: Maker, again: Callable[[], Run], tmp_path: Path) -> Run:
    """As ``purged``; and since then the source's newest event file has become longer."""
    newest = tmp_path / "elsewhere" / "attempts" / "1" / "events" / "000001.jsonl"
    lines = newest.read_bytes().splitlines(keepends=True)
    episodes = [at for at, line in enumerate(lines) if json.loads(line)["kind"] == "episode"]
    newest.write_bytes(b"".join(lines[: episodes[3]]))
    run = gone_through(again())
    newest.write_bytes(b"".join(lines))
    return run


def removed_files(run: Run) -> list[str]:
    root = Path(run.directory)
    return [str(path.relative_to(root)) for path in (root / "log.txt", *root.glob("tensors/*")) if path.exists()]


def test_importing_it_again_brings_nothing_back(purged: Run, again: Callable[[], Run]) -> None:
    entries = AuditEntry.objects.count()
    run = again()
    assert run.pk == purged.pk
    assert (said(run), with_text(run).exists(), removed_files(run)) == ([], False, [])
    assert AuditEntry.objects.count() == entries
    assert (run.text_removed_at, run.log_removed_at) == (purged.text_removed_at, purged.log_removed_at)


def test_what_is_new_comes_with_its_texts_and_the_old_ones_stay_away(
    purged: Run, source: Maker, again: Callable[[], Run], tmp_path: Path
) -> None:
    old = set(Transcript.objects.filter(episode__run=purged).values_list("pk", flat=True))
    source.now = time.time() - 60
    source.attempt(2, 2, 3, finish="stopped")
    (tmp_path / "elsewhere" / "tensors" / "000002.safetensors").write_bytes(b"new")
    run = again()
    assert run.rollouts_done == 3
    fresh = with_text(run)
    assert fresh.exists() and not fresh.filter(pk__in=old).exists()
    texts = said(run)
    assert texts
    for path in Path(run.directory).glob("attempts/1/events/*.jsonl"):  # of the first attempt nothing
        events = [json.loads(line) for line in path.read_text().splitlines()]
        turns = [turn for event in events if event["kind"] == "episode" for turn in event["payload"]["turns"]]
        assert not any(turn["observation"] or turn["reply"] for turn in turns)
    assert removed_files(run) == ["log.txt", "tensors/000002.safetensors"]  # the log was written to since
    assert run.finished_at is not None and run.finished_at.timestamp() > time.time() - DAY_S
    purge()
    run = again()  # while the new end is not due, nothing changes
    assert (said(run), with_text(run).count()) == (texts, fresh.count())
    Run.objects.filter(pk=run.pk).update(finished_at=purged.finished_at)
    purge()
    assert (said(run), with_text(run).exists()) == ([], False)


def test_of_a_file_that_grew_only_what_is_new_has_texts(grown: Run, again: Callable[[], Run]) -> None:
    run = again()
    assert run.last_cursor > grown.last_cursor
    kept = {one.episode.key for one in with_text(run).select_related("episode")}
    assert kept
    spoken = set()
    for path in Path(run.directory).glob("attempts/1/events/*.jsonl"):
        for event in map(json.loads, path.read_text().splitlines()):
            if event["kind"] == "episode" and any(turn["reply"] for turn in event["payload"]["turns"]):
                spoken.add(event["payload"]["episode"])
    assert spoken == kept
    assert AuditEntry.objects.filter(action="run.texts_purged", detail__imported_again=True).count() == 1


def test_an_import_that_was_cut_short_leaves_no_text_behind(
    grown: Run, again: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Run) -> int:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="the disk is gone"):
        patch.setattr("webapp.runs.importing.remove_texts_again", broken)
        again()
    assert said(grown)
    purge()
    assert (said(grown), with_text(grown).exists()) == ([], False)


def test_without_a_rule_any_longer_an_import_brings_log_and_token_files(purged: Run, again: Callable[[], Run]) -> None:
    Retention.objects.all().delete()
    run = again()
    assert removed_files(run) == ["log.txt", "tensors/000000.safetensors"]
    assert run.log_removed_at is None
    assert not with_text(run).exists()
