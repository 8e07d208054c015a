"""A worker holds sessions: the real model in a child process, time limits, broken children, dead workers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

READY = '{"kind": "ready", "id": "", "reply_tokens": 900, "temperature": 1.0}'
LIMIT_S = 120.0


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Callable[[], None]], None]]:
    """``meanwhile(act)``: act in another thread while the test's own thread holds a session, as a worker's main thread does."""
    problems: list[BaseException] = []
    threads: list[threading.Thread] = []

    def start(act: Callable[[], None]) -> None:
        def run() -> None:
            from django.db import connections

            try:
                act()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                problems.append(error)
            finally:
                connections.close_all()

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(LIMIT_S)
    assert problems == []


@pytest.fixture
def waiting(held: Callable[..., Any]) -> Any:
    return held(state="waiting", lease=None, leased_until=None, facts={})


def scripted(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A child of ours in the place of the trainer."""
    command = [sys.executable, "-c", script]
    monkeypatch.setattr("webapp.trying.holding.try_command", lambda run, checkpoint: command)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_the_built_in_model_chats_and_plays(saved: Any, waiting: Any, meanwhile: Any) -> None:
    from tests.trainer.starter_run import program
    from webapp.trying import services
    from webapp.trying.holding import hold

    environment = saved.environments.filter(superseded=False).first()
    environment.code, environment.hint_text = program("r0000-s00")
    environment.save()

    def person() -> None:
        common = {"actor": waiting.by, "trial_id": waiting.pk}
        wait_for(lambda: refreshed(waiting).state != "waiting" and refreshed(waiting).facts)
        said = services.say(**common, text="Hello", reply_tokens=8)
        wait_for(lambda: refreshed(said).state == "done")
        played = services.play(**common, environment=environment, seed=7, arm="hinted")
        wait_for(lambda: refreshed(played).state == "done")
        too_long = services.say(**common, text="x " * 5000)
        wait_for(lambda: refreshed(too_long).state == "refused")
        services.end_trial(**common)

    meanwhile(person)
    hold(trial_id=waiting.pk)
    trial = refreshed(waiting)
    assert (trial.state, trial.failure, trial.facts["prompts"]) == ("ended", "", "compact")
    chat, play, refused = trial.exchanges.order_by("id")
    assert 1 <= chat.answer["reply_tokens"] <= 8 and chat.answer["finish"] in ("stop", "length")
    assert play.answer["status"] in ("won", "lost", "turn_limit", "truncated_by_env", "length")
    assert play.answer["sandbox_tier"] and len(play.turns) >= 1
    assert play.turns[0]["observation"].endswith(f"HINT: {environment.hint_text}")
    assert "no room for a reply" in refused.failure


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("script", "state", "expected"),
    [
        ("import sys; sys.exit('trainer: user: no such checkpoint')", "failed", "no such checkpoint"),
        ("print('Loading …')", "failed", "not JSON"),
        ("print('[1]')", "failed", "no answer"),
        ("print('x' * 20_000_000)", "failed", "more than"),
        ("""print('{"kind": "reply", "id": "1"}')""", "failed", "was not asked"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "failed", "was killed (SIGKILL)"),
    ],
)  # fmt: skip
def test_a_child_that_breaks_ends_the_session_with_its_reason(
    script: str, state: str, expected: str, waiting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.trying.holding import hold

    scripted(monkeypatch, script)
    hold(trial_id=waiting.pk)
    trial = refreshed(waiting)
    assert trial.state == state
    assert expected in trial.failure and len(trial.failure) <= 2000


@pytest.mark.django_db(transaction=True)
def test_a_model_that_does_not_answer_never_hangs_as_thinking(
    waiting: Any, monkeypatch: pytest.MonkeyPatch, settings: Any, meanwhile: Any
) -> None:
    from webapp.trying import services
    from webapp.trying.holding import hold

    settings.SPADEWORK_TRY_ANSWER_S = 2
    scripted(monkeypatch, f"import time; print('{READY}', flush=True); time.sleep(1000)")

    def person() -> None:
        wait_for(lambda: refreshed(waiting).state == "ready")
        services.say(actor=waiting.by, trial_id=waiting.pk, text="Hello")

    meanwhile(person)
    hold(trial_id=waiting.pk)
    trial = refreshed(waiting)
    assert trial.state == "failed" and "no answer within" in trial.failure
    assert trial.exchanges.get().state == "lost"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("setting", ["SPADEWORK_TRY_IDLE_S", "SPADEWORK_TRY_LIMIT_S"])
def test_a_session_ends_by_itself(setting: str, waiting: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    from webapp.trying.holding import hold

    setattr(settings, setting, 1)
    scripted(monkeypatch, f"import os, time; print('{READY}', flush=True); time.sleep(1000)")
    hold(trial_id=waiting.pk)
    assert refreshed(waiting).state == "expired"


@pytest.mark.django_db(transaction=True)
def test_ending_it_ends_the_process_and_what_it_started(
    waiting: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: Any
) -> None:
    from webapp.runs.supervision.proctree import identify
    from webapp.trying import services
    from webapp.trying.holding import hold

    script = (
        "import json, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(json.dumps({'kind': 'ready', 'id': '', 'pid': child.pid}), flush=True)\n"
        "time.sleep(1000)"
    )
    scripted(monkeypatch, script)

    def person() -> None:
        wait_for(lambda: refreshed(waiting).state == "ready")
        services.end_trial(actor=waiting.by, trial_id=waiting.pk)

    meanwhile(person)
    hold(trial_id=waiting.pk)
    trial = refreshed(waiting)
    assert trial.state == "ended" and trial.lease is None
    assert identify(trial.facts["pid"]) is None


def test_the_sweep_finds_lost_untaken_and_forgotten_sessions(
    held: Callable[..., Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.trying import jobs
    from webapp.trying.models import Exchange, Trial

    sent: list[int] = []
    monkeypatch.setattr(jobs, "send_hold", sent.append)
    now = timezone.now()
    free = {"state": "waiting", "lease": None, "leased_until": None}
    silent, fine = held(leased_until=now - timedelta(seconds=1)), held()
    untaken, forgotten, fresh = held(**free), held(**free), held(**free)
    old = held(state="ended", ended_at=now - timedelta(days=31))
    Trial.objects.filter(pk=untaken.pk).update(created_at=now - timedelta(seconds=settings.SPADEWORK_TRY_IDLE_S + 1))
    Trial.objects.filter(pk=forgotten.pk).update(created_at=now - timedelta(seconds=20))
    asked = Exchange.objects.create(trial=silent, kind="chat", text="hello", state="running")
    jobs.sweep()
    assert [refreshed(one).state for one in (silent, fine, untaken, forgotten, fresh)] == [
        "lost", "ready", "expired", "waiting", "waiting",
    ]  # fmt: skip
    assert (refreshed(asked).state, refreshed(asked).failure) == ("lost", jobs.LOST)
    assert sent == [forgotten.pk]
    assert not Trial.objects.filter(pk=old.pk).exists()


def test_texts_are_cut_and_stored_as_postgres_takes_them() -> None:
    from webapp.trying.holding import TEXT_CHARS, _bounded

    turn = _bounded(
        {"observation": "a\x00\ud800" * 20_000, "reply": 7, "action": "x" * 30_000, "info": {"a": float("inf")}}
    )
    assert (len(turn["observation"]), turn["observation_characters"]) == (TEXT_CHARS, 260_000)
    assert "\x00" not in turn["observation"] and turn["reply"] == "" and len(turn["action"]) == TEXT_CHARS
    assert turn["info"] == {}


def refreshed(row: Any) -> Any:
    return type(row).objects.get(pk=row.pk)


def test_a_session_whose_play_was_removed_with_its_run_is_ended(waiting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.trying import holding, jobs
    from webapp.trying.models import Exchange

    class Child:
        def __init__(self, _command: Any) -> None:
            self.asked: dict[str, Any] = {}
            self.is_ready = False

        def __enter__(self) -> Child:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def send(self, request: dict[str, Any]) -> None:
            self.asked = request

        def answers(self, _within: float) -> list[dict[str, Any]]:
            if not self.is_ready:
                self.is_ready = True
                Exchange.objects.create(trial=waiting, kind="chat", conversation=1, text="hello")
                return [{"kind": "ready", "id": ""}]
            Exchange.objects.filter(trial=waiting).delete()  # as purging the run of the played environment does
            return [{"kind": "reply", "id": self.asked["id"], "text": "x"}] if self.asked else []

    monkeypatch.setattr(holding, "TryChild", Child)
    holding.hold(trial_id=waiting.pk)
    jobs.sweep()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.leased_until) == ("lost", None)
    assert waiting.ended_at is not None


def test_a_child_killed_by_a_signal_without_a_name_says_its_number() -> None:
    from webapp.trying.child import TryChild

    with (
        TryChild(["/bin/sh", "-c", "kill -40 $$"]) as child,
        pytest.raises(Exception, match=r"killed \(signal 40\)") as told,
    ):
        while True:
            child.answers(1)
    assert type(told.value).__name__ == "ChildFailed"


def test_a_checkpoint_of_a_deleted_run_is_not_tried(saved: Any, person: Any) -> None:
    from webapp.runs.errors import ActRefused
    from webapp.runs.models import Run
    from webapp.trying import services

    Run.objects.filter(pk=saved.pk).update(deleted_at=timezone.now())
    run = Run.objects.get(pk=saved.pk)
    with pytest.raises(ActRefused, match="has been deleted; restore it to try its checkpoints"):
        services.start_trial(actor=person("operator"), run=run, checkpoint="000001")
