"""Ingesters that are killed at random moments, and several at once: every event is there once, in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.eventwriter import EventWriter
from tests.runs.processes import environment_of_tests, start_module
from webapp.episodes.models import Episode, Transcript
from webapp.runs import eventlog
from webapp.runs.ingest import Ingester
from webapp.runs.models import Event, MetricPoint, Run

pytestmark = pytest.mark.django_db(transaction=True)


def cursor_of(run: Run) -> int:
    return Run.objects.get(pk=run.pk).last_cursor


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def assert_everything_is_there_once(run: Run, writer: EventWriter, rollouts: int, plays: int) -> None:
    run.refresh_from_db()
    seqs = list(Event.objects.filter(run=run, attempt=1).order_by("cursor").values_list("seq", flat=True))
    assert seqs == list(range(1, writer.seq + 1))
    cursors = list(Event.objects.filter(run=run).order_by("cursor").values_list("cursor", flat=True))
    assert cursors == list(range(1, run.last_cursor + 1))
    assert Episode.objects.filter(run=run).count() == rollouts * plays * 2
    assert Transcript.objects.filter(episode__run=run).count() == rollouts * plays * 2
    assert MetricPoint.objects.filter(run=run).count() == rollouts * 3
    assert (run.gap, run.warnings) == (False, 0)


def test_an_ingester_killed_again_and_again_loses_and_doubles_nothing(run: Run) -> None:
    writer = EventWriter(Path(run.directory))
    writer.start()
    rollouts, plays = 16, 20
    writer.rollouts(range(rollouts), plays=plays)
    generator = random.Random(7)
    for _ in range(3):
        before = cursor_of(run)
        process = start_module("tests.runs.ingest_process", str(run.pk), "600", env=environment_of_tests())
        wait_until(lambda: cursor_of(run) > before)  # noqa: B023  it is called at once
        time.sleep(generator.uniform(0, 0.03))
        process.kill()
        process.wait()
    assert cursor_of(run) < writer.seq  # the last one, too, was killed before it was done
    Ingester(run_id=run.pk, directory=Path(run.directory)).drain()
    assert_everything_is_there_once(run, writer, rollouts, plays)


def test_two_ingesters_at_once_share_the_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "BATCH_LINES", 25)
    writer = EventWriter(Path(run.directory))
    writer.start()
    rollouts, plays = 16, 10
    processes = [
        start_module("tests.runs.ingest_process", str(run.pk), "600", env=environment_of_tests()) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
    writer.rollouts(range(rollouts), plays=plays)
    ours = Ingester(run_id=run.pk, directory=Path(run.directory))
    wait_until(lambda: ours.poll() == 0 and Run.objects.get(pk=run.pk).rollouts_done == rollouts)
    for process in processes:
        assert process.poll() is None  # neither fell over the other
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    ours.drain()
    assert_everything_is_there_once(run, writer, rollouts, plays)
