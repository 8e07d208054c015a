"""The event log: whole lines, gapless numbers, nothing that is not a number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainer.errors import LimitError
from trainer.eventlog import EventLog, attempts, disk_error, finite, read_events, repair
from trainer.events import MetricsReported, RunStateChanged, Warned
from trainer.rundir import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_sequence_numbers_run_on_over_the_files_of_an_attempt(run: RunDirectory) -> None:
    log = EventLog(run, 1, rollout=4, clock=lambda: 12.5)
    log.emit(RunStateChanged(state="running"))
    for rollout in (4, 5):
        log.enter_rollout(rollout)
        log.emit(Warned(message=f"in {rollout}"))
    log.close()
    assert [p.name for p in sorted(run.events(1).iterdir())] == ["000004.jsonl", "000005.jsonl"]
    events = list(read_events(run, 1))
    assert [(e["seq"], e["rollout"], e["kind"]) for e in events] == [
        (1, None, "run_state"),
        (2, 4, "warning"),
        (3, 5, "warning"),
    ]
    assert events[0]["time"] == 12.5


def test_a_line_is_on_disk_when_emit_returns(run: RunDirectory) -> None:
    log = EventLog(run, 1)
    log.emit(Warned(message="now"))
    assert json.loads((run.events(1) / "000000.jsonl").read_text())["payload"]["message"] == "now"
    log.close()


def test_a_torn_tail_is_cut_and_numbers_go_on(run: RunDirectory) -> None:
    log = EventLog(run, 1)
    log.emit(Warned(message="one"))
    log.close()
    path = run.events(1) / "000000.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq": 2, "time"')
    assert [e["seq"] for e in read_events(run, 1)] == [1]
    log = EventLog(run, 1)
    log.emit(Warned(message="two"))
    log.close()
    assert [e["seq"] for e in read_events(run, 1)] == [1, 2]


def test_a_file_that_holds_only_a_torn_line_is_emptied(run: RunDirectory) -> None:
    run.events(1).mkdir(parents=True)
    (run.events(1) / "000000.jsonl").write_bytes(b'{"seq": 1')
    assert repair(run, 1) == 0
    assert (run.events(1) / "000000.jsonl").read_bytes() == b""


def test_numbers_that_are_not_finite_are_refused_by_the_payload(run: RunDirectory) -> None:
    with pytest.raises(ValidationError):
        MetricsReported(values={"loss/total": float("nan")})
    assert finite(float("inf")) is None and finite(1.5) == 1.5 and finite(None) is None


def test_hostile_text_stays_one_line_of_ascii(run: RunDirectory) -> None:
    log = EventLog(run, 1)
    log.emit(Warned(message="a\nb\u2028c\x1b[31m\u202e\U0001f600"))
    log.close()
    data = (run.events(1) / "000000.jsonl").read_bytes()
    assert data.count(b"\n") == 1 and data.isascii()
    assert next(read_events(run, 1))["payload"]["message"] == "a\nb\u2028c\x1b[31m\u202e\U0001f600"


def test_listeners_hear_every_event(run: RunDirectory) -> None:
    heard = []
    log = EventLog(run, 1)
    log.listeners.append(lambda kind, payload, rollout: heard.append((kind, payload["message"], rollout)))
    log.emit(Warned(message="x"))
    log.close()
    assert heard == [("warning", "x", None)]


def test_a_full_disk_is_a_limit(run: RunDirectory) -> None:
    error = disk_error(OSError(28, "No space left on device", "/runs/x"), "the event log")
    assert isinstance(error, LimitError) and "/runs/x" in str(error) and "free some space" in str(error)
    assert disk_error(OSError(5, "Input/output error"), "x").owner == "infrastructure"


def test_attempts_are_counted_by_number_not_by_name(run: RunDirectory) -> None:
    for number in (1, 2, 10):
        run.events(number).mkdir(parents=True)
    assert attempts(run) == [1, 2, 10]


def test_a_metric_that_is_no_finite_number_is_named_with_what_it_is() -> None:
    from trainer.measure import report

    event = report(
        {
            "loss/total": float("nan"),
            "loss/kl": float("inf"),
            "loss/entropy": -float("inf"),
            "regret/mean": None,
            "optim/lr": 0.5,
        }
    )
    assert event.values == {
        "loss/total": None,
        "loss/kl": None,
        "loss/entropy": None,
        "regret/mean": None,
        "optim/lr": 0.5,
    }
    assert event.not_finite == {"loss/total": "nan", "loss/kl": "inf", "loss/entropy": "-inf"}
