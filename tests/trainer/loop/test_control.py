"""Commands of the supervisor: carried out at safe points, answered in the log."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.control import Control, StopRequest
from trainer.eventlog import EventLog, read_events
from trainer.meter import Meter
from trainer.run import attempt, create
from trainer.rundir import RunDirectory
from trainer.state import TrainingState

When = Callable[[str, Mapping[str, Any], int | None], bool]


class Driven:
    """A run during which commands (or signals) are given at chosen events."""

    def __init__(self, root: Path, *reactions: tuple[When, Callable[[RunDirectory], None]], **overrides: Any) -> None:
        self.run = create(root, fake_config(**overrides))
        self.engines = FakeEngines()
        self._left = list(reactions)
        self.code = attempt(self.run, self.engines, listen=self._listen)
        self.events = list(read_events(self.run, 1))

    def _listen(self, log: EventLog) -> None:
        log.listeners.append(self._on_event)

    def _on_event(self, kind: str, payload: Mapping[str, Any], rollout: int | None) -> None:
        for reaction in [r for r in self._left if r[0](kind, payload, rollout)]:
            self._left.remove(reaction)
            reaction[1](self.run)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind]

    def answers(self) -> dict[str, dict[str, Any]]:
        return {e["payload"]["command"]: e["payload"] for e in self.of("command")}


def at(kind: str, rollout: int, **fields: Any) -> When:
    return lambda k, p, r: k == kind and r == rollout and all(p.get(n) == v for n, v in fields.items())


def send(action: str, *, attempt: int | None = 1, number: int = 1, **fields: Any) -> Callable[[RunDirectory], None]:
    line = {
        "id": f"{action}-{number}",
        "time": 0.0,
        "attempt": attempt,
        "action": action,
        "environment": None,
        "reason": "",
        **fields,
    }

    def write(run: RunDirectory) -> None:
        with run.control.open("a") as file:
            file.write(json.dumps(line) + "\n")

    return write


def test_stop_ends_the_run_with_a_checkpoint_of_the_last_finished_rollout(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run", (at("episode", 3), send("stop", reason="enough")), checkpoint__every=4)
    assert driven.code == 0
    states = [e["payload"] for e in driven.of("run_state")]
    assert [s["state"] for s in states] == ["running", "stopping", "stopped"]
    assert states[-1]["reason"] == "enough"
    assert driven.answers()["stop-1"] == {
        "command": "stop-1", "action": "stop", "accepted": True, "message": "", "effective_rollout": 3,
    }  # fmt: skip
    assert [p.name for p in driven.run.checkpoints.iterdir()] == ["000003"]
    again = FakeEngines()
    assert attempt(driven.run, again) == 0
    assert next(read_events(driven.run, 2))["payload"]["start_rollout"] == 3


def test_a_stop_in_the_middle_of_a_rollout_resumes_to_the_same_end(tmp_path: Path) -> None:
    whole = Driven(tmp_path / "whole", checkpoint__every=4)
    stopped = Driven(tmp_path / "run", (at("episode", 3), send("stop")), checkpoint__every=4)
    assert attempt(stopped.run, FakeEngines()) == 0
    for name in ("model/model.safetensors", "state/waiting.safetensors"):
        assert (stopped.run.checkpoint(6) / name).read_bytes() == (whole.run.checkpoint(6) / name).read_bytes()


def test_sigterm_is_a_stop(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run", (at("rollout_finished", 1), lambda _: os.kill(os.getpid(), signal.SIGTERM)))
    assert driven.code == 0
    last = driven.of("run_state")[-1]["payload"]
    assert last["state"] == "stopped" and "SIGTERM" in last["reason"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_pause_waits_until_it_is_resumed(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 1), send("pause")),
        (lambda k, p, _: k == "run_state" and p["state"] == "paused", send("resume")),
    )
    assert driven.code == 0
    kinds = [
        (e["kind"], e["payload"].get("state"))
        for e in driven.events
        if e["kind"] in ("run_state", "command", "episode")
    ]
    paused = kinds.index(("run_state", "paused"))
    assert kinds[paused + 1 : paused + 3] == [("command", None), ("run_state", "running")]
    assert driven.answers()["pause-1"]["accepted"] and driven.answers()["resume-1"]["accepted"]


def test_a_pause_is_no_time_of_the_rollout(tmp_path: Path) -> None:
    now = [0.0]
    run = create(tmp_path / "run", fake_config())
    log, state = EventLog(run, 1), TrainingState.fresh(fake_config(), None)

    def an_hour(_: float) -> None:
        now[0] += 3600
        if now[0] > 2 * 3600:
            send("resume")(run)

    control = Control(run, attempt=1, log=log, state=state, stop=StopRequest(), sleep=an_hour, clock=lambda: now[0])
    meter = Meter(log, control.running_s)
    send("pause")(run)
    with meter.running("play", total=1):
        now[0] += 5
        control.safe_point()
        now[0] += 2
    log.close()
    assert now[0] == 2 * 3600 + 7
    assert (control.paused_s, meter.phase_s["play"], meter.elapsed_s) == (2 * 3600, 7.0, 7.0)


def test_the_seconds_of_a_paused_rollout_are_those_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.control._PAUSE_POLL_S", 2.0)  # no pause is shorter
    driven = Driven(
        tmp_path / "run",
        (at("episode", 1), send("pause")),
        (lambda k, p, _: k == "run_state" and p["state"] == "paused", send("resume")),
        schedule__rollouts=2,
    )
    begun, ended = (e for e in driven.events if e["rollout"] == 1 and e["kind"].startswith("rollout_"))
    assert ended["payload"]["elapsed_s"] < ended["time"] - begun["time"] - 1.0


def test_a_paused_run_can_be_stopped(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 1), send("pause")),
        (lambda k, p, _: k == "run_state" and p["state"] == "paused", send("stop")),
    )
    assert driven.code == 0
    assert [e["payload"]["state"] for e in driven.of("run_state")] == ["running", "paused", "stopping", "stopped"]


def test_commands_for_another_attempt_are_left_alone(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run", (at("rollout_started", 1), send("stop", attempt=2)))
    assert driven.of("run_state")[-1]["payload"]["state"] == "completed"
    assert driven.answers() == {}


def test_a_stop_for_no_attempt_in_particular_does_not_stop_the_next_one_too(tmp_path: Path) -> None:
    both = (at("rollout_started", 4), send("stop", attempt=None)), (at("rollout_started", 4), send("checkpoint"))
    driven = Driven(tmp_path / "run", *both, checkpoint__every=3)
    shutil.rmtree(driven.run.checkpoint(4))  # the lines stand after the checkpoint that the next attempt goes on from

    def stop_after_4(kind: str, payload: Mapping[str, Any], rollout: int | None) -> None:
        if at("rollout_finished", 4)(kind, payload, rollout):
            send("stop", attempt=None, number=2)(driven.run)

    assert attempt(driven.run, FakeEngines(), listen=lambda log: log.listeners.append(stop_after_4)) == 0
    events = list(read_events(driven.run, 2))
    assert events[0]["payload"]["start_rollout"] == 3
    assert [e["payload"]["command"] for e in events if e["kind"] == "command"] == ["stop-2"]
    assert (events[-1]["payload"]["state"], events[-1]["rollout"]) == ("stopped", 5)


def test_commands_in_a_new_file_are_read_from_its_beginning(tmp_path: Path) -> None:
    filler = send("quarantine", attempt=None, environment="x" * 300)
    first = Driven(tmp_path / "run", (at("rollout_started", 0), filler), (at("rollout_started", 2), send("stop")))
    first.run.control.unlink()
    send("stop", attempt=2, number=2)(first.run)
    assert attempt(first.run, FakeEngines()) == 0
    events = list(read_events(first.run, 2))
    assert [e["payload"]["command"] for e in events if e["kind"] == "command"] == ["stop-2"]
    assert (events[-1]["payload"]["state"], events[-1]["rollout"]) == ("stopped", 2)


def test_a_file_that_is_written_anew_while_the_run_goes_on_is_news_too(tmp_path: Path) -> None:
    def anew(run: RunDirectory) -> None:
        run.control.unlink()
        send("stop", attempt=None, number=2)(run)

    filler = send("quarantine", attempt=None, environment="x" * 300)
    run = Driven(tmp_path / "run", (at("rollout_started", 0), filler), (at("rollout_started", 1), send("stop"))).run

    def listen(log: EventLog) -> None:
        log.listeners.append(lambda kind, p, rollout: anew(run) if at("rollout_started", 2)(kind, p, rollout) else None)

    assert attempt(run, FakeEngines(), listen=listen) == 0
    events = list(read_events(run, 2))
    assert [e["payload"]["command"] for e in events if e["kind"] == "command"] == ["stop-2"]
    assert (events[-1]["payload"]["state"], events[-1]["rollout"]) == ("stopped", 2)


def test_checkpoint_now_saves_the_last_finished_rollout(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "run", (at("rollout_started", 1), send("checkpoint")), checkpoint__every=3)
    assert driven.answers()["checkpoint-1"]["message"] == "checkpoint 000001 written"
    assert [e["payload"]["name"] for e in driven.of("checkpoint")] == ["000001", "000003", "000006"]


def test_a_quarantined_environment_is_played_trained_and_shown_no_more(tmp_path: Path) -> None:
    key = "r0000-s01"
    driven = Driven(
        tmp_path / "run", (at("rollout_started", 1), send("quarantine", attempt=None, environment=key, reason="leaks"))
    )
    assert driven.answers()["quarantine-1"]["effective_rollout"] == 1
    assert {e["rollout"] for e in driven.of("episode") if e["payload"]["environment"] == key} == {0}
    assert {"environment": key, "reason": "quarantined"} in [e["payload"] for e in driven.of("memory_removed")]
    rows = [row for batch in driven.engines.learner.batches[1:] for row in batch]
    assert rows and not any(row.sample.startswith(key) for row in rows)
    later = [c["payload"] for c in driven.of("candidate") if c["rollout"] > 0]
    assert later and not any(key in (*c["examples"], *c["counter_examples"]) for c in later)
    assert key not in {e["payload"]["environment"] for e in driven.of("designer_reward")}


def test_an_environment_quarantined_while_it_plays_is_left_out_of_that_rollout(tmp_path: Path) -> None:
    key = "r0000-s00"
    driven = Driven(tmp_path / "run", (at("episode", 0), send("quarantine", attempt=None, environment=key)))
    assert driven.answers()["quarantine-1"]["effective_rollout"] == 0
    assert not any(row.sample.startswith(key) for batch in driven.engines.learner.batches for row in batch)
    assert key not in {e["payload"]["environment"] for e in driven.of("regret")}


@pytest.mark.parametrize("kind", ["episode", "regret"])
def test_an_environment_quarantined_in_its_rollout_counts_in_none_of_its_metrics(tmp_path: Path, kind: str) -> None:
    key = "r0000-s00"
    driven = Driven(
        tmp_path / "run",
        (at(kind, 0, environment=key), send("quarantine", attempt=None, environment=key)),
        schedule__rollouts=1,
    )
    assert any(e["payload"]["environment"] == key for e in driven.of("episode"))
    kept = [e["payload"] for e in driven.of("episode") if e["payload"]["environment"] != key]
    groups: dict[str, list[float]] = {}
    for episode in kept:
        if episode["arm"] == "unhinted":
            groups.setdefault(episode["environment"], []).append(episode["reward"])
    assert len(groups) == 3
    rewards = [reward for group in groups.values() for reward in group]
    regrets = [e["payload"]["regret"] for e in driven.of("regret") if e["payload"]["environment"] != key]
    values = driven.of("metrics")[0]["payload"]["values"]
    assert values["win_rate/unhinted"] == values["reward/agent_mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert values["pool/environments"] == 3
    assert values["group/frac_all_won"] == pytest.approx(sum(min(g) > 0 for g in groups.values()) / 3)
    bands = sum(values[f"band/{name}"] * 3 for name in ("below_20", "20_40", "40_60", "60_80", "above_80"))
    assert bands == pytest.approx(3)
    assert sum(value for name, value in values.items() if name.startswith("stop/")) == len(kept)
    assert (values["regret/n"], values["regret/mean"]) == (len(regrets), pytest.approx(sum(regrets) / len(regrets)))


def test_a_released_environment_plays_again(tmp_path: Path) -> None:
    key = "r0000-s01"
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 1), send("quarantine", attempt=None, environment=key)),
        (at("rollout_finished", 1), send("release", attempt=None, environment=key)),
        schedule__regenerate_every=3,
        schedule__designer_delay=3,
    )
    assert {e["rollout"] for e in driven.of("episode") if e["payload"]["environment"] == key} == {0, 2}
    states = [e["payload"]["state"] for e in driven.of("environment_state") if e["payload"]["environment"] == key]
    assert states == ["quarantined", "active", "retired"]


def test_nonsense_and_unknown_environments_are_answered_not_obeyed(tmp_path: Path) -> None:
    def nonsense(run: RunDirectory) -> None:
        with run.control.open("a") as file:
            file.write('{"id": "x", "action": "explode"}\n[]\nnot json\n')

    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 1), nonsense),
        (at("rollout_started", 2), send("quarantine", attempt=None, environment="../../etc")),
        (at("rollout_started", 2), send("quarantine", attempt=None, environment="r" * 300)),
    )
    assert driven.code == 0
    refused = [e["payload"] for e in driven.of("command")]
    assert len(refused) == 5 and not any(r["accepted"] for r in refused)
    assert refused[0]["command"] == "x"
    assert "no environment" in refused[-1]["message"]


def test_a_command_that_is_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    def half(run: RunDirectory) -> None:
        run.control.write_text('{"id": "s", "attempt": 1, "act')

    def rest(run: RunDirectory) -> None:
        with run.control.open("a") as file:
            file.write('ion": "stop"}\n')

    driven = Driven(tmp_path / "run", (at("rollout_started", 1), half), (at("rollout_started", 2), rest))
    assert driven.answers()["s"]["effective_rollout"] == 2


def judge(action: str, environment: str, *, number: int = 1, **fields: Any) -> Callable[[RunDirectory], None]:
    return send(action, attempt=None, number=number, environment=environment, **fields)


def rows_of(driven: Driven, update: int, key: str, role: str) -> dict[str, list[float]]:
    """Advantages by sample of one environment in one update."""
    found: dict[str, list[float]] = {}
    for row in driven.engines.learner.batches[update]:
        if row.role == role and row.sample.startswith(key):
            found.setdefault(row.sample, []).append(row.advantage)
    return found


def test_a_down_weighted_environments_samples_count_by_its_weight(tmp_path: Path) -> None:
    key = "r0000-s01"
    plain = Driven(tmp_path / "plain")
    driven = Driven(tmp_path / "run", (at("regret", 0), judge("down_weight", key, weight=0.25)))
    answer = driven.answers()["down_weight-1"]
    assert (answer["accepted"], answer["effective_rollout"]) == (True, 0)
    assert [e["payload"] for e in driven.of("environment_weight")] == [
        {"environment": key, "weight": 0.25, "reason": ""}
    ]
    before, after = rows_of(plain, 0, key, "agent"), rows_of(driven, 0, key, "agent")
    assert any(a for advantages in before.values() for a in advantages)
    assert after == {sample: [0.25 * a for a in advantages] for sample, advantages in before.items()}
    other = "r0000-s00"
    assert rows_of(driven, 0, other, "agent") == rows_of(plain, 0, other, "agent")
    reward = next(e["payload"] for e in driven.of("designer_reward") if e["payload"]["environment"] == key)
    assert reward["environment_weight"] == 0.25
    assert reward["reward"] == (reward["raw"] - reward["skill_mean"]) * reward["weight"] * 0.25
    due = next(e["rollout"] for e in driven.of("designer_reward") if e["payload"]["environment"] == key)
    assert rows_of(driven, due, key, "designer") == {key: [reward["reward"]]}
    metrics = {e["rollout"]: e["payload"]["values"] for e in driven.of("metrics")}
    assert metrics[0]["pool/down_weighted"] == 1
    assert metrics[0]["samples/agent"] == len(rows_of(plain, 0, "r", "agent"))


def test_weight_1_restores_and_the_same_weight_twice_changes_nothing(tmp_path: Path) -> None:
    key = "r0000-s01"
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 0), judge("down_weight", key, weight=0.5, number=0)),  # not there yet
        (at("regret", 0), judge("down_weight", key, weight=0.5)),
        (at("regret", 0), judge("down_weight", key, weight=0.5, number=2)),
        (at("rollout_started", 1), judge("down_weight", key, weight=1.0, number=3)),
        (at("episode", 1), judge("down_weight", key, weight=1.0, number=4)),
    )
    answers = driven.answers()
    assert [answers[f"down_weight-{n}"]["accepted"] for n in range(5)] == [False, True, False, True, False]
    assert answers["down_weight-0"]["message"] == "this run has no environment 'r0000-s01'"
    assert answers["down_weight-2"]["message"] == "its weight already is 0.5"
    assert [e["payload"]["weight"] for e in driven.of("environment_weight")] == [0.5, 1.0]
    rows = rows_of(
        Driven(tmp_path / "plain", (at("regret", 0), judge("down_weight", key, weight=0.5))), 0, key, "agent"
    )
    assert rows_of(driven, 0, key, "agent") == rows


def test_a_weight_that_is_none_is_refused_by_its_range(tmp_path: Path) -> None:
    def write(run: RunDirectory) -> None:
        with run.control.open("a") as file:
            for number, weight in enumerate(("0", "-1", "1.5", "NaN", "null")):
                file.write(
                    f'{{"id": "w{number}", "action": "down_weight", "environment": "r0000-s01", "weight": {weight}}}\n'
                )

    driven = Driven(tmp_path / "run", (at("rollout_started", 1), write))
    messages = [driven.answers()[f"w{n}"] for n in range(5)]
    assert not any(m["accepted"] for m in messages)
    assert [m["message"].split(", and is ")[1] for m in messages] == ["0.0", "-1.0", "1.5", "nan", "None"]
    assert driven.of("environment_weight") == []


def test_a_purged_record_is_shown_no_more_until_it_is_restored(tmp_path: Path) -> None:
    one_skill: dict[str, Any] = {
        "schedule__skills": ["Optimization"],
        "schedule__active_skills": 1,
        "memory__band_low": 0.0,
        "memory__band_high": 1.0,
    }
    shown = Driven(tmp_path / "plain", **one_skill)
    used = [
        key for c in shown.of("candidate") for key in (*c["payload"]["examples"], *c["payload"]["counter_examples"])
    ]
    key = max(sorted(set(used)), key=used.count)
    born = int(key[1:5])
    purged = Driven(
        tmp_path / "purged",
        (at("memory_added", born, environment=key), judge("purge_memory", key, reason="odd")),
        **one_skill,
    )
    assert purged.answers()["purge_memory-1"]["accepted"]
    assert {"environment": key, "reason": "purged"} in [e["payload"] for e in purged.of("memory_removed")]
    later = [c["payload"] for c in purged.of("candidate") if c["rollout"] > born]
    assert later and not any(key in (*c["examples"], *c["counter_examples"]) for c in later)
    restored = Driven(
        tmp_path / "restored",
        (at("memory_added", born, environment=key), judge("purge_memory", key)),
        (at("memory_removed", born, environment=key), judge("restore_memory", key)),
        **one_skill,
    )
    assert [e["payload"]["environment"] for e in restored.of("memory_restored")] == [key]
    assert [c["payload"]["examples"] for c in restored.of("candidate")] == [
        c["payload"]["examples"] for c in shown.of("candidate")
    ]


def test_purging_and_restoring_what_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 1), judge("restore_memory", "r0000-s00")),
        (at("rollout_started", 1), judge("purge_memory", "r0000-s00")),
        (at("rollout_started", 1), judge("purge_memory", "r0000-s00", number=2)),
        (at("rollout_started", 1), judge("purge_memory", "r0099-s00", number=3)),
    )
    answers = driven.answers()
    assert answers["restore_memory-1"]["message"] == "no purged memory record of r0000-s00 is kept"
    assert answers["purge_memory-1"]["accepted"]
    assert answers["purge_memory-2"]["message"] == "the memory holds no record of r0000-s00"
    assert answers["purge_memory-3"]["message"] == "this run has no environment 'r0099-s00'"


def test_judgements_survive_a_stop_and_resume(tmp_path: Path) -> None:
    judgements = (
        (at("rollout_started", 1), judge("down_weight", "r0000-s01", weight=0.5)),
        (at("rollout_started", 1), judge("purge_memory", "r0000-s00")),
    )
    whole = Driven(tmp_path / "whole", *judgements)
    stopped = Driven(tmp_path / "run", *judgements, (at("rollout_started", 2), send("stop")))
    assert attempt(stopped.run, FakeEngines()) == 0
    assert not any(e["kind"] == "command" for e in read_events(stopped.run, 2))
    ends = [json.loads((run.checkpoint(6) / "state" / "state.json").read_text()) for run in (whole.run, stopped.run)]
    assert [end["weights"] for end in ends] == [{"r0000-s01": 0.5}] * 2
    assert [[r["environment"] for r in end["purged"]] for end in ends] == [["r0000-s00"]] * 2
    for name in ("model/model.safetensors", "state/waiting.safetensors"):
        assert (stopped.run.checkpoint(6) / name).read_bytes() == (whole.run.checkpoint(6) / name).read_bytes()


def test_judgements_made_after_the_checkpoint_are_read_again_by_the_next_attempt(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path / "run",
        (at("rollout_started", 4), judge("down_weight", "r0000-s01", weight=0.5)),
        (at("environment_weight", 4), send("stop")),
        checkpoint__every=3,
    )
    shutil.rmtree(driven.run.checkpoint(4))  # as if the process had been killed instead
    assert attempt(driven.run, FakeEngines()) == 0
    events = list(read_events(driven.run, 2))
    assert events[0]["payload"]["start_rollout"] == 3
    answer = next(e for e in events if e["kind"] == "command")["payload"]
    assert (answer["command"], answer["accepted"], answer["effective_rollout"]) == ("down_weight-1", True, 3)
