"""Event log → Postgres."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs.eventwriter import EventWriter
from webapp.environments.models import (
    Candidate,
    CorpusDocument,
    DesignerReward,
    Environment,
    MemoryRecord,
    RegretPoint,
)
from webapp.episodes.models import Episode, Transcript
from webapp.runs import eventlog
from webapp.runs.ingest import Ingester
from webapp.runs.models import Attempt, Checkpoint, Event, MetricPoint, Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def writer(run: Run) -> EventWriter:
    return EventWriter(Path(run.directory))


@pytest.fixture
def ingester(run: Run) -> Ingester:
    return Ingester(run_id=run.pk, directory=Path(run.directory))


def test_a_whole_run_becomes_rows(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.rollouts(range(2))
    assert ingester.drain() == writer.seq
    run.refresh_from_db()
    assert run.status == "running"
    assert (run.rollout, run.rollouts_done, run.total_rollouts) == (1, 2, 4)
    assert run.latest == {"win_rate/unhinted": 0.25, "regret/mean": 0.5, "loss/total": None}
    assert run.phase["phases"]["design"] == {"state": "started", "done": 1, "total": 2, "elapsed_s": 0.5}
    assert run.eta_s == 10.0
    assert MetricPoint.objects.filter(run=run, name="regret/mean").count() == 2
    assert Checkpoint.objects.filter(run=run).count() == 2
    environment = Environment.objects.get(run=run, key="r0001-s00")
    assert (environment.hint_state, environment.hint_text) == ("ok", "Go left.")
    assert environment.candidate == Candidate.objects.get(run=run, key="r0001-s00-a1")
    assert environment.document == CorpusDocument.objects.get(run=run, key="doc-r0001-s00")
    assert environment.episodes.count() == 4
    assert MemoryRecord.objects.get(environment=environment).snippet == "class TankEnv"
    assert RegretPoint.objects.get(environment=environment).regret == 0.5
    transcript = Transcript.objects.get(episode__key="r0001-s00/o0/h/01")
    assert transcript.turns[0]["reply"] == "open"
    assert transcript.final_observation == "Done."


def test_cursors_are_gapless_and_every_line_is_there_once(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.rollouts(range(3))
    ingester.drain()
    run.refresh_from_db()
    cursors = list(Event.objects.filter(run=run).order_by("cursor").values_list("cursor", flat=True))
    assert cursors == list(range(1, run.last_cursor + 1))
    seqs = list(Event.objects.filter(run=run, attempt=1).order_by("cursor").values_list("seq", flat=True))
    assert seqs == list(range(1, writer.seq + 1))
    assert Event.objects.filter(run=run, attempt=None).values_list("kind", flat=True).get() == "status"


def test_ingesting_again_from_scratch_changes_nothing(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.rollouts(range(2))
    ingester.drain()
    count = Event.objects.filter(run=run).count()
    assert Ingester(run_id=run.pk, directory=Path(run.directory)).drain() == 0
    assert Event.objects.filter(run=run).count() == count
    assert Episode.objects.filter(run=run).count() == 8


def test_events_kept_for_the_page_are_light_and_name_their_row(
    run: Run, writer: EventWriter, ingester: Ingester
) -> None:
    writer.start()
    writer.rollouts(range(1))
    ingester.drain()
    episode = Event.objects.filter(run=run, kind="episode").earliest("cursor")
    assert episode.payload["id"] == Episode.objects.get(key="r0000-s00/o0/u/00").pk
    assert episode.payload["turns"] == 1
    assert "final_observation" not in episode.payload
    candidate = Event.objects.get(run=run, kind="candidate")
    assert not {"prompt", "reply", "code"} & set(candidate.payload)
    assert candidate.payload["stages"] == [{"stage": "parse", "outcome": "passed", "message": ""}]


def test_a_torn_last_line_waits_for_its_end(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    whole = writer.line("warning", {"message": "low on disk", "where": ""})
    writer.raw(whole[:25])
    assert ingester.drain() == 2
    writer.raw(whole[25:])
    assert ingester.drain() == 1
    assert Event.objects.get(run=run, kind="warning").payload["message"] == "low on disk"
    run.refresh_from_db()
    assert (run.warnings, run.gap) == (1, False)


def test_a_torn_line_of_a_dead_attempt_is_dropped_when_the_next_attempt_exists(run: Run, ingester: Ingester) -> None:
    first = EventWriter(Path(run.directory), attempt=1)
    first.start()
    first.rollouts(range(2))
    first.raw('{"seq": 99, "time": 1.0, "ro')
    second = EventWriter(Path(run.directory), attempt=2)
    second.start(start_rollout=2)
    second.rollouts(range(2, 3))
    ingester.drain()
    run.refresh_from_db()
    assert (run.attempt, run.rollouts_done, run.gap, run.warnings) == (2, 3, False, 0)


def test_a_gap_is_shown_on_the_run(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.seq += 3  # events 3 to 5 never reach the file
    writer.emit("warning", message="after the hole")
    ingester.drain()
    run.refresh_from_db()
    assert run.gap
    warning = Event.objects.get(run=run, kind="ingest_warning")
    assert warning.payload["message"].startswith("events 3 to 5 are missing")
    assert warning.payload["where"] == "attempt 1"


def test_an_unknown_kind_is_kept_and_ignored(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.raw(writer.line("hologram", {"depth": 3}))
    ingester.drain()
    event = Event.objects.get(run=run, kind="hologram")
    assert (event.payload, event.problem) == ({"depth": 3}, "")
    run.refresh_from_db()
    assert run.warnings == 0


def test_unknown_fields_of_a_known_kind_are_ignored(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.open_rollout(0)
    writer.environment("r0000-s00")
    payload = writer.episode_payload("r0000-s00", arm="hinted", play=3)
    payload["colour"] = "green"
    payload["turns"][0]["mood"] = "good"
    writer.raw(writer.line("episode", payload))
    ingester.drain()
    assert Episode.objects.get(run=run).play == 3


def test_a_payload_that_does_not_fit_is_kept_whole_and_reported(
    run: Run, writer: EventWriter, ingester: Ingester
) -> None:
    writer.start()
    writer.raw(writer.line("regret", {"environment": "r0000-s00", "regret": "a lot"}))
    writer.emit("warning", message="the next one is fine")
    ingester.drain()
    event = Event.objects.get(run=run, kind="regret")
    assert event.payload == {"environment": "r0000-s00", "regret": "a lot"}
    assert "does not fit regret" in event.problem
    assert Event.objects.get(run=run, kind="warning").payload["message"] == "the next one is fine"
    run.refresh_from_db()
    assert run.warnings == 2


def test_a_row_the_database_refuses_leaves_its_neighbours_alone(
    run: Run, writer: EventWriter, ingester: Ingester
) -> None:
    writer.start()
    writer.open_rollout(0)
    writer.environment("r0000-s00")
    writer.episode("r0000-s00", play=0)
    payload = writer.episode_payload("r0000-s00", arm="unhinted", play=1)
    payload["seed"] = 2**70  # valid JSON, larger than any column
    writer.raw(writer.line("episode", payload))
    writer.episode("r0000-s00", play=2)
    writer.close_rollout()
    ingester.drain()
    assert list(Episode.objects.filter(run=run).order_by("play").values_list("play", flat=True)) == [0, 2]
    misfit = Event.objects.get(run=run, kind="episode", problem__contains="the database refused it")
    assert misfit.payload["seed"] == 2**70
    run.refresh_from_db()
    assert run.rollouts_done == 1


def test_a_name_too_long_for_an_index_is_refused_alone(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.rollout = 0
    noise = "".join(chr(0x4E00 + (index * 7919) % 20000) for index in range(5000))  # nothing to compress
    writer.raw(writer.line("metrics", {"values": {noise: 1.0}}))
    writer.raw(writer.line("x" * 5000, {}))
    writer.emit("metrics", values={"loss/total": 1.0})
    ingester.drain()
    assert MetricPoint.objects.get(run=run).name == "loss/total"
    assert "the database refused it" in Event.objects.get(run=run, kind="metrics", problem__gt="").problem
    assert "a kind of 5000 characters" in Event.objects.get(run=run, kind="unreadable").problem


@pytest.mark.parametrize(
    "line",
    [
        b"not json at all\n",
        b'{"seq": 3}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"\n",
        b'{"seq":3,"time":1e300,"kind":"x"}\n',
    ],
)
def test_a_line_that_is_no_event_is_kept_as_unreadable(
    run: Run, writer: EventWriter, ingester: Ingester, line: bytes
) -> None:
    writer.start()
    writer.raw(line)
    writer.emit("warning", message="still here")
    ingester.drain()
    event = Event.objects.get(run=run, kind="unreadable")
    assert event.seq is None
    assert event.problem
    assert Event.objects.filter(run=run, kind="warning").exists()
    run.refresh_from_db()
    assert not run.gap


def test_a_line_over_the_limit_is_skipped_and_reported(
    run: Run, writer: EventWriter, ingester: Ingester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "LINE_BYTES", 10_000)
    writer.start()
    writer.emit("warning", message="x" * 50_000)
    writer.emit("warning", message="short")
    ingester.drain()
    assert "over the limit" in Event.objects.get(run=run, kind="unreadable").problem
    run.refresh_from_db()
    assert run.gap  # its number is lost with it, and the run says so


def test_case_22_nul_and_lone_surrogates_survive_visibly(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.open_rollout(0)
    writer.environment("r0000-s00", code="s = '\x00'")
    writer.episode("r0000-s00", play=0, observation="bad \x00 half \udc00 whole \U0001f600", reply="\ud83d")
    writer.episode("r0000-s00", play=1)
    ingester.drain()
    assert Environment.objects.get(run=run).code == "s = '\\u0000'"
    turn = Transcript.objects.get(episode__run=run, episode__play=0).turns[0]
    assert turn["observation"] == "bad \\u0000 half \\udc00 whole \U0001f600"
    assert turn["reply"] == "\\ud83d"
    assert Episode.objects.filter(run=run).count() == 2
    json.dumps(turn).encode()  # valid UTF-8


def test_non_finite_numbers_never_reach_a_row(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.rollout = 0
    writer.raw(writer.line("metrics", {"values": {"loss/total": float("nan")}}))
    writer.raw(writer.line("metrics", {"values": {"loss/total": 7}}).replace("7}", "1e999}"))
    ingester.drain()
    assert not MetricPoint.objects.filter(run=run).exists()
    problems = Event.objects.filter(run=run, kind="metrics").order_by("cursor")
    assert [event.payload["values"]["loss/total"] for event in problems] == ["nan", "inf"]
    assert all("does not fit metrics" in event.problem for event in problems)


def test_a_metric_that_came_out_as_no_number_keeps_what_it_was(
    run: Run, writer: EventWriter, ingester: Ingester
) -> None:
    writer.start()
    writer.rollout = 0
    writer.emit(
        "metrics", values={"loss/kl": None, "loss/total": 1.5, "regret/mean": None}, not_finite={"loss/kl": "-inf"}
    )
    ingester.drain()
    rows = MetricPoint.objects.filter(run=run).order_by("name").values_list("name", "value", "mark")
    assert list(rows) == [("loss/kl", None, "-inf"), ("loss/total", 1.5, ""), ("regret/mean", None, "")]


def test_repeated_numbers_are_ignored_and_reported(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    writer.start()
    writer.raw(writer.line("warning", {"message": "again"}, seq=1))
    ingester.drain()
    assert not Event.objects.filter(run=run, kind="warning").exists()
    assert "came a second time" in Event.objects.get(run=run, kind="ingest_warning").payload["message"]


def test_a_resume_supersedes_what_lies_beyond_its_checkpoint(run: Run, ingester: Ingester) -> None:
    first = EventWriter(Path(run.directory), attempt=1)
    first.start()
    first.rollouts(range(3))
    first.emit("memory_removed", environment="r0000-s00", reason="oldest")
    first.emit("environment_state", environment="r0000-s00", state="retired", reason="window over")
    ingester.drain()
    assert MemoryRecord.objects.get(run=run, environment_key="r0000-s00").removed_rollout == 2
    second = EventWriter(Path(run.directory), attempt=2)
    second.start(start_rollout=1)
    second.rollouts(range(1, 2))
    ingester.drain()

    def kept(model) -> list[tuple[int, int]]:
        rows = model.objects.filter(run=run, superseded=False).order_by("rollout")
        return list(rows.values_list("rollout", "attempt").distinct())

    for model in (Environment, Episode, RegretPoint, MemoryRecord, Checkpoint, CorpusDocument, Candidate):
        assert kept(model) == [(0, 1), (1, 2)], model.__name__
    assert kept(MetricPoint) == [(0, 1), (1, 2)]
    assert Episode.objects.filter(run=run, attempt=1, superseded=True).count() == 8
    assert Attempt.objects.get(run=run, number=1).superseded_from == 1
    assert Attempt.objects.get(run=run, number=2).superseded_from is None
    oldest = MemoryRecord.objects.get(run=run, environment_key="r0000-s00")
    assert (oldest.removed_rollout, oldest.removed_reason) == (None, "")
    assert Environment.objects.get(run=run, key="r0000-s00").state == "active"
    run.refresh_from_db()
    assert (run.rollout, run.rollouts_done, run.attempt) == (1, 2, 2)


def test_a_resume_leaves_no_value_of_the_abandoned_line_among_the_newest(run: Run, ingester: Ingester) -> None:
    first = EventWriter(Path(run.directory), attempt=1)
    first.start()
    for rollout, values in enumerate(({"a": 0.1, "b": 1.0}, {"a": 0.2, "b": None}, {"a": 0.3}, {"a": 0.4, "c": 4.0})):
        first.open_rollout(rollout)
        first.close_rollout(**values)
    ingester.drain()
    run.refresh_from_db()
    assert (run.latest["a"], run.latest["c"]) == (0.4, 4.0)
    second = EventWriter(Path(run.directory), attempt=2)
    second.start(start_rollout=2)
    ingester.drain()
    run.refresh_from_db()
    assert run.latest == {"a": 0.2, "b": None}
    second.open_rollout(2)
    second.close_rollout(b=2.0)
    ingester.drain()
    run.refresh_from_db()
    assert run.latest == {"a": 0.2, "b": 2.0}


def test_an_earlier_attempt_read_late_does_not_move_the_run(run: Run, ingester: Ingester) -> None:
    Run.objects.filter(pk=run.pk).update(attempt=2)
    first = EventWriter(Path(run.directory), attempt=1)
    first.start()
    first.emit("run_state", state="paused")
    ingester.drain()
    run.refresh_from_db()
    assert (run.status, run.attempt) == ("starting", 2)
    assert Attempt.objects.get(run=run, number=1).reported_state == "paused"


def test_weights_and_restored_records_reach_the_rows(run: Run, writer: EventWriter, ingester: Ingester) -> None:
    key = "r0000-s00"
    writer.start()
    writer.rollouts(range(1))
    writer.emit("environment_weight", environment=key, weight=0.25, reason="easy to game")
    writer.emit("memory_removed", environment=key, reason="purged")
    ingester.drain()
    assert Environment.objects.get(run=run, key=key).training_weight == 0.25
    record = MemoryRecord.objects.get(run=run, environment_key=key)
    assert (record.removed_rollout, record.removed_reason) == (0, "purged")
    writer.emit("memory_restored", environment=key)
    writer.emit(
        "designer_reward", environment=key, skill="Optimization", variant="blend", win_rate=0.5, regret=0.1, anchor=1.0,
        regret_term=0.5, raw=0.8, skill_mean=0.4, weight=2.0, environment_weight=0.25, reward=0.2, faulty=False,
    )  # fmt: skip
    ingester.drain()
    record.refresh_from_db()
    assert (record.removed_rollout, record.removed_attempt, record.removed_reason) == (None, None, "")
    assert DesignerReward.objects.get(run=run, environment_key=key).environment_weight == 0.25
    assert not Event.objects.filter(run=run, kind="ingest_warning").exists()
