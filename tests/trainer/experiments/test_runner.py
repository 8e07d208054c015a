"""One very short real experiment from end to end: the built-in model, the real sandbox, a run of its own process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from trainer.__main__ import main
from trainer.engines import open_engines
from trainer.errors import InfrastructureError, UserError
from trainer.eventlog import EventLog, read_events
from trainer.events import MetricsReported, RolloutFinished, RolloutStarted
from trainer.experiments.arms import ARMS, FIXED_POOL, SPADE, Plan, arm_named
from trainer.experiments.results import read_explorations, read_result, read_untouched
from trainer.experiments.runner import Comparison, _gave_out, facts_of
from trainer.experiments.sets import EvaluationSet, load_set
from trainer.presets import load_preset
from trainer.provenance import model_fingerprint, settings_fingerprint
from trainer.run import attempt, create
from trainer.rundir import RunDirectory
from trainer.weights import STARTER_DIRECTORY

SHORT = {
    "schedule.rollouts": 2, "schedule.environments": 3, "schedule.plays": 2, "schedule.hinted_plays": 2, "schedule.regenerate_every": 1,
    "schedule.designer_delay": 1, "checkpoint.keep_every": 1,
}  # fmt: skip


def small(name: Any) -> EvaluationSet:
    return EvaluationSet(name, load_set(name).environments[:2])


def comparison(root: Path, said: list[str], **plan: Any) -> Comparison:
    made = Plan(results=root / "results", work=root / "work", overrides=SHORT, plays=2, **plan)
    return Comparison(made, {"probe": small("probe"), "heldout": small("heldout")}, said.append)


def stopped_run(comparison: Comparison, model: str) -> None:
    """What an interrupted command leaves behind: a run directory whose first attempt was stopped."""
    plan, spade = comparison.plan, arm_named(SPADE)
    settings = plan.fingerprint(spade, {name: programs.fingerprint for name, programs in comparison.sets.items()})
    run = create(plan.work / f"{model}-{settings}-spade-5", plan.config(spade, 5))
    run.control.write_text(json.dumps({"id": "c1", "attempt": 1, "action": "stop"}) + "\n")
    assert attempt(run, open_engines) == 0
    assert [e["payload"]["state"] for e in read_events(run, 1) if e["kind"] == "run_state"][-1] == "stopped"


@pytest.mark.slow
def test_an_experiment_is_trained_evaluated_stored_and_not_done_twice(tmp_path: Path) -> None:
    said: list[str] = []
    model = model_fingerprint(STARTER_DIRECTORY)
    stopped_run(comparison(tmp_path, said), model)
    (path,) = comparison(tmp_path, said).run([arm_named(SPADE)], [5])
    assert any(text.startswith("spade, seed 5: going on in ") for text in said)
    assert path == tmp_path / "results" / model / "spade-5.json"
    result = read_result(path)
    assert (result.arm, result.seed, result.model, result.rollouts) == ("spade", 5, model, 2)
    assert (
        result.episodes_unhinted + result.episodes_faulted >= 2 * 2 * 2
    )  # two rollouts, at least two environments, two plays
    assert [len(values) for values in result.curve.values()] == [2] * len(result.curve)
    assert result.probe.plays == result.heldout.plays == 4
    assert list(result.probe_curve) == ["0", "1", "2"] and result.probe_curve["2"] == result.probe.win_rate
    untouched = read_untouched(path.with_name("untouched.json"))
    assert untouched.parameters == sum(p.numel() for p in load_file(STARTER_DIRECTORY / "model.safetensors").values())
    assert (result.probe_before, result.heldout_before) == (untouched.probe.win_rate, untouched.heldout.win_rate)
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["lock"], (
        "the run directory goes when the result is stored"
    )
    assert comparison(tmp_path, said).run([arm_named(SPADE)], [5]) == []
    assert said[-1] == "spade, seed 5: there already"


def test_runs_with_other_settings_do_not_go_among_those_that_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "run", "--set", "schedule.rollouts=60"]) == 2
    assert "say with --results where theirs go" in capsys.readouterr().err


def test_another_start_model_plays_on_its_own_pool_and_where_it_lies_changes_no_fingerprint(tmp_path: Path) -> None:
    shutil.copytree(STARTER_DIRECTORY, tmp_path / "model")
    there, built_in = Plan(work=tmp_path / "work", model=tmp_path / "model"), Plan()
    for name in (SPADE, FIXED_POOL):
        config = there.config(arm_named(name), 0)
        assert config.model.path == str(tmp_path / "model")
        assert there.fingerprint(arm_named(name), {}) == built_in.fingerprint(arm_named(name), {})
    assert config.pool.path == str(tmp_path / "work" / f"pool-{model_fingerprint(STARTER_DIRECTORY)}.jsonl")
    assert there.config(arm_named(SPADE), 0).pool.path == built_in.config(arm_named(SPADE), 0).pool.path == ""


@pytest.mark.slow
def test_an_exploration_is_judged_by_the_probe_set_and_never_sees_the_held_out_one(tmp_path: Path) -> None:
    said: list[str] = []
    exploring = comparison(tmp_path, said)
    blind = Comparison(exploring.plan, {"probe": exploring.sets["probe"]}, said.append)
    found = blind.explore({"optim.learning_rate": 3e-4}, 1)
    assert (found.changed, found.seed, found.rollouts) == ({"optim.learning_rate": 3e-4}, 1, 2)
    assert list(found.probe_curve) == ["0", "1", "2"] and found.probe_before == found.probe_curve["0"]
    assert read_explorations(tmp_path / "results") == [found]
    assert not list((tmp_path / "results").glob("*/*.json")), "an exploration is no result"
    with pytest.raises(UserError, match="there is no setting"):
        blind.explore({"optim.rate": 1}, 1)


@pytest.mark.slow
def test_a_run_whose_designer_writes_nothing_sound_any_more_is_scored_as_it_was_then(tmp_path: Path) -> None:
    said: list[str] = []
    given = comparison(tmp_path, said)
    ruined = {**SHORT, "optim.learning_rate": 0.5}  # one update, and the model writes noise
    plan = Plan(results=tmp_path / "results", work=tmp_path / "work", overrides=ruined, plays=2)
    (path,) = Comparison(plan, given.sets, said.append).run([arm_named(SPADE)], [0])
    result = read_result(path)
    assert result.rollouts == 1 and list(result.probe_curve) == ["0", "1"]
    assert result.ended_early is not None and result.ended_early.startswith("rollout 1: none of 15 design attempts")
    assert "raise designer.attempts" not in result.ended_early
    assert any("ended early (rollout 1: none of 15" in text for text in said)


def test_an_unfinished_exploration_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    made = comparison(tmp_path, [])
    changed = {"optim.learning_rate": 0.001}
    plan = Plan(
        results=tmp_path / "results", work=tmp_path / "work", overrides={**SHORT, "schedule.plays": 3, **changed}
    )
    name = f"explore-{model_fingerprint(STARTER_DIRECTORY)}-{settings_fingerprint(changed)}-0"
    older = create(plan.work / name, plan.config(arm_named(SPADE), 0))
    older.attempts.mkdir()
    with pytest.raises(
        UserError, match=r"is unfinished and has other settings \(schedule.plays 3 there, 2 now\); remove it"
    ):
        made.explore(changed, 0)
    assert older.config.exists()


def test_every_arm_differs_from_spade_by_its_point_only() -> None:
    plan = Plan()
    spade = plan.config(arm_named(SPADE), 0).model_dump()
    changed = {
        arm.name: {k for k, v in plan.config(arm, 0).model_dump().items() if v != spade[k]} - {"preset", "description"}
        for arm in ARMS
    }
    long = {"schedule", "optim"}
    assert changed == {
        "spade": set(), "fixed-pool": {"pool", "designer"}, "no-memory": {"memory"}, "no-corpus": {"corpus"},
        "designer-not-trained": {"designer"}, "solve-rate": {"reward"}, "learning-potential": {"reward"},
        "spade-long": long, "fixed-pool-long": {"pool", "designer"} | long,
    }  # fmt: skip
    spans = {arm.name: (plan.config(arm, 0).schedule.rollouts, plan.config(arm, 0).optim.learning_rate) for arm in ARMS}
    assert {arm.pool: spans[arm.pool] for arm in ARMS} == {"fixed-pool": (40, 2e-4), "fixed-pool-long": (100, 1e-4)}
    assert all(spans[arm.name] == spans[arm.pool] for arm in ARMS)
    demo = load_preset("demo").model_dump()
    assert {k for k, v in spade.items() if v != demo[k]} == {"schedule", "engine", "checkpoint"}


def test_the_fingerprint_of_settings_ignores_seed_and_checkpoints_and_sees_the_rest() -> None:
    spade, parts = arm_named(SPADE), {"probe": "a"}
    one = Plan().fingerprint(spade, parts)
    assert one == Plan(overrides={"checkpoint.keep_last": 7}).fingerprint(spade, parts)
    others = [
        Plan(overrides={"optim.learning_rate": 1e-4}).fingerprint(spade, parts),
        Plan(plays=9).fingerprint(spade, parts),
        Plan().fingerprint(spade, {"probe": "b"}),
        Plan().fingerprint(arm_named(FIXED_POOL), parts),
    ]
    assert len({one, *others}) == 5


def test_an_unknown_arm_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="spade, fixed-pool, no-memory"):
        arm_named("spode")


def test_a_run_that_fails_ends_the_comparison_with_its_message_and_stores_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    failing = comparison(tmp_path, said)
    model = model_fingerprint(STARTER_DIRECTORY)
    plan = Plan(
        results=tmp_path / "results",
        work=tmp_path / "work",
        plays=2,
        overrides={**SHORT, "corpus.source": str(tmp_path / "none")},
    )
    with pytest.raises(InfrastructureError, match=r"ended with code 2:[\s\S]*corpus\.source"):
        Comparison(plan, failing.sets, said.append).one(arm_named(SPADE), 0)
    assert [p.name for p in (tmp_path / "results" / model).iterdir()] == ["untouched.json"]


def test_rollouts_that_were_done_again_after_a_kill_count_once(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for number, (start, rates) in enumerate([(0, (0.1, 0.2, 0.3)), (1, (0.5, 0.6))], start=1):
        log = EventLog(run, number, rollout=start)
        for rollout, rate in enumerate(rates, start=start):
            log.enter_rollout(rollout)
            log.emit(
                RolloutStarted(
                    regeneration=False,
                    offset=0,
                    active_skills=[],
                    environments=1,
                    expected_unhinted=1,
                    expected_hinted=0,
                )
            )
            log.emit(MetricsReported(values={"win_rate/unhinted": rate}))
            log.emit(RolloutFinished(elapsed_s=2.0, phase_s={}, tokens_sampled=0, tokens_trained=0, eta_s=None))
        log.close()
    facts = facts_of(run)
    assert facts["curve"]["win_rate/unhinted"] == [0.1, 0.5, 0.6]
    assert facts["curve"]["regret/mean"] == [None, None, None]
    assert facts["train_seconds"] == 6.0 and facts["episodes_unhinted"] == 0
    assert json.dumps(facts)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("rollout 7: none of 45 design attempts passed the gates (most often parse: x); raise designer.attempts", "rollout 7: none of 45"),
        ("no space left while writing environment file r0007-s00-a1.json; free some space and resume", None),
    ],
)  # fmt: skip
def test_only_a_designer_that_gave_out_makes_a_result_of_a_failed_run(
    tmp_path: Path, reason: str, told: str | None
) -> None:
    run = RunDirectory(tmp_path)
    run.events(1).mkdir(parents=True)
    events = [
        {"seq": 1, "time": 0, "rollout": 7, "kind": "candidate", "payload": {"accepted": False}},
        {"seq": 2, "time": 0, "rollout": 7, "kind": "run_state", "payload": {"state": "failed", "owner": "limit", "reason": reason}},
    ]  # fmt: skip
    run.event_file(1, 7).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    found = _gave_out(run)
    assert found is None if told is None else found is not None and found.startswith(told)
