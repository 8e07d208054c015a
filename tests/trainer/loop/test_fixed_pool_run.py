"""A run on a fixed pool: the loop as ever, but nothing is designed and no design is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fakes import FakeEngines, fake_config, game
from trainer.checkpoint import Checkpoints
from trainer.config import RunConfig
from trainer.eventlog import read_events
from trainer.run import attempt, create
from trainer.rundir import RunDirectory

HINT = "Halve the interval with every answer, in the form \\boxed{N}."


def write(path: Path, *, extra: tuple[dict[str, Any], ...] = ()) -> Path:
    records = [
        {"id": f"e{i}", "skill": "Optimization", "code": game(name=f"Hunt{i}", word=f"word{i}"), "hint": HINT}
        for i in range(6)
    ]
    del records[5]["hint"]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, *extra]))
    return path


def settings(pool: Path, **overrides: Any) -> RunConfig:
    return fake_config(pool__path=str(pool), designer__train=False, **overrides)


def payloads(run: RunDirectory, kind: str, number: int = 1) -> list[dict[str, Any]]:
    return [e["payload"] for e in read_events(run, number) if e["kind"] == kind]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, FakeEngines]:
    root = tmp_path_factory.mktemp("fixed")
    broken = {"id": "bad", "code": game().replace("def step(self, action):", "def step(self, action)")}
    run, engines = create(root / "run", settings(write(root / "pool.jsonl", extra=(broken,)))), FakeEngines()
    assert attempt(run, engines) == 0
    return run, engines


def test_every_set_is_drawn_without_replacement_and_passed_the_gates(done: tuple[RunDirectory, FakeEngines]) -> None:
    run, _ = done
    drawn = [e["candidate"] for e in payloads(run, "environment")]
    assert len(drawn) == 3 * 4  # six rollouts, a set of four every second one
    assert sorted(drawn[:4] + drawn[4:6]) == [f"pool/e{i}" for i in range(6)]
    assert all(len(set(drawn[i : i + 4])) == 4 for i in (0, 4, 8))
    (left_out,) = [w["message"] for w in payloads(run, "warning") if w["where"] == "pool"]
    assert left_out.startswith("bad of the pool is left out: parse")
    assert {s["active_skills"][-1] for s in payloads(run, "rollout_started")} == {
        "Causal Inference"
    }  # all six, no rotation


def test_nothing_is_designed_and_only_episodes_are_trained(done: tuple[RunDirectory, FakeEngines]) -> None:
    run, engines = done
    assert not payloads(run, "candidate") and not payloads(run, "designer_reward")
    assert {row.role for batch in engines.learner.batches for row in batch} == {"agent"}
    assert len(engines.learner.batches) == 6
    metrics = payloads(run, "metrics")
    assert all(m["values"]["gates/pass_rate"] is None and m["values"]["samples/designer"] == 0 for m in metrics)


def test_hints_are_those_of_the_pool_and_none_is_asked_for(done: tuple[RunDirectory, FakeEngines]) -> None:
    run, _ = done
    candidates = {e["environment"]: e["candidate"] for e in payloads(run, "environment")}
    hints = payloads(run, "hint")
    assert len(hints) == len(candidates)
    for hint in hints:
        stored = candidates[hint["environment"]] != "pool/e5"
        assert (hint["state"], hint["text"], hint["tries"]) == (("ok", HINT, 0) if stored else ("none", None, 0))
    states = {r["environment"]: r["state"] for r in payloads(run, "regret")}
    assert {candidates[e] for e, state in states.items() if state == "no_hint"} == {"pool/e5"}


def test_the_run_directory_says_which_environment_of_which_pool_was_played(
    done: tuple[RunDirectory, FakeEngines],
) -> None:
    run, _ = done
    first = payloads(run, "environment")[0]
    kept = json.loads((run.environment(first["environment"]) / "provenance.json").read_text())
    assert f"pool/{kept['origin']['id']}" == first["candidate"] and kept["origin"]["pool"].endswith("pool.jsonl")
    assert (run.environment(first["environment"]) / "code.py").read_text() == first["code"]


def test_a_resumed_run_draws_what_an_uninterrupted_one_draws(tmp_path: Path) -> None:
    pool = write(tmp_path / "pool.jsonl")
    whole = create(tmp_path / "whole", settings(pool))
    attempt(whole, FakeEngines())
    parts = create(tmp_path / "parts", settings(pool, checkpoint__keep_last=10))
    attempt(parts, FakeEngines())
    for later in (4, 5, 6):  # as if killed in rollout 3
        (parts.checkpoint(later) / "COMPLETE").unlink()
    attempt(parts, FakeEngines())
    assert next(iter(payloads(parts, "run_started", 2)))["start_rollout"] == 3
    expected = [e for e in payloads(whole, "environment") if e["environment"] >= "r0004"]
    assert payloads(parts, "environment", 2) == expected
    assert (
        Checkpoints(parts, settings(pool).checkpoint).newest(print).state["pool"]
        == (Checkpoints(whole, settings(pool).checkpoint).newest(print).state["pool"])
    )


def test_a_pool_in_which_nothing_passes_the_gates_ends_the_run_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text(json.dumps({"id": "x", "code": "class XEnv: pass"}) + "\n")
    assert attempt(create(tmp_path / "run", settings(pool)), FakeEngines()) == 2
    assert "none of the 1 environments" in capsys.readouterr().err


def test_a_stop_is_heard_while_the_pool_is_examined(tmp_path: Path) -> None:
    code = game().replace("def step(self, action):", "def step(self, action)")
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"id": f"e{i:02d}", "code": code}) + "\n" for i in range(40)))
    run = create(tmp_path / "run", settings(pool))

    def stop_at_the_first(kind: str, payload: Mapping[str, Any], _: int | None) -> None:
        if kind == "warning" and payload["message"].startswith("e00"):
            run.control.write_text('{"id": "s", "attempt": 1, "action": "stop", "reason": "enough"}\n')

    assert attempt(run, FakeEngines(), listen=lambda log: log.listeners.append(stop_at_the_first)) == 0
    assert len(payloads(run, "warning")) == 16, "the first sixteen were examined"
    assert payloads(run, "run_state")[-1] == {"state": "stopped", "reason": "enough", "owner": None}


def test_all_of_a_large_pool_is_examined(tmp_path: Path) -> None:
    sound, broken = (game(), game().replace("def step(self, action):", "def step(self, action)"))
    pool = tmp_path / "pool.jsonl"
    codes = [sound if i in (0, 15, 16, 33) else broken for i in range(34)]
    pool.write_text("".join(json.dumps({"id": f"e{i:02d}", "code": c}) + "\n" for i, c in enumerate(codes)))
    run = create(tmp_path / "run", settings(pool, schedule__rollouts=1))
    assert attempt(run, FakeEngines()) == 0
    assert {e["candidate"] for e in payloads(run, "environment")} == {"pool/e00", "pool/e15", "pool/e16", "pool/e33"}
    assert len(payloads(run, "warning")) == 30
