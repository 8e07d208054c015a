"""A fork goes on from a checkpoint of another run, with changed settings, and says what it took over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.trainer.compare import assert_equal_states, effective_events, files_of
from tests.trainer.fakes import FakeEngines, fake_config
from tests.trainer.tiny_model import tiny_model
from trainer.__main__ import main
from trainer.checkpoint import load
from trainer.checkpoint_files import damage, finished, read_marker, write_marker
from trainer.config import LossConfig, OptimConfig, RunConfig
from trainer.creation import forked_from, read_config
from trainer.errors import UserError
from trainer.eventlog import read_events
from trainer.events import KINDS
from trainer.fork import changes, choose_checkpoint, fork
from trainer.learn.engine import TrainRow
from trainer.learn.plain import PlainLearner
from trainer.presets import with_overrides
from trainer.run import attempt, create
from trainer.rundir import RunDirectory

INHERITED = {"environment", "hint", "memory_added", "environment_state", "environment_weight"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Six rollouts with new sets at 0, 2 and 4; every checkpoint kept; some environments barred."""
    run = create(tmp_path_factory.mktemp("source") / "run", fake_config(checkpoint__keep_every=1))
    assert attempt(run, FakeEngines(raises=0.2, no_hint=0.3)) == 0
    return run


def settings(run: RunDirectory, **overrides: Any) -> RunConfig:
    return with_overrides(read_config(run), {name.replace("__", "."): value for name, value in overrides.items()})


def events_from(run: RunDirectory, rollout: int) -> list[dict[str, Any]]:
    """What happened from that rollout on; what a fork reports before its first rollout is left out."""
    events = [e for e in effective_events(run) if e["rollout"] >= rollout]
    return events[next(i for i, e in enumerate(events) if e["kind"] == "rollout_started") :]


@pytest.mark.parametrize("checkpoint", ["000002", "000003"])
def test_a_fork_without_changes_goes_on_like_its_source_bit_for_bit(
    source: RunDirectory, tmp_path: Path, checkpoint: str
) -> None:
    made = fork(source.root, tmp_path / "fork", checkpoint=checkpoint)
    assert (made.checkpoint, made.next_rollout, made.changed) == (checkpoint, int(checkpoint), {})
    run = RunDirectory(tmp_path / "fork")
    assert attempt(run, FakeEngines(raises=0.2, no_hint=0.3)) == 0
    assert events_from(run, int(checkpoint)) == events_from(source, int(checkpoint))
    one, other = (load(r.checkpoint(6)) for r in (source, run))
    assert one.state == other.state
    assert_equal_states(one.learner_state, other.learner_state)
    weights = [(r.checkpoint(6) / "model" / "model.safetensors").read_bytes() for r in (source, run)]
    assert weights[0] == weights[1]
    for name, content in files_of(run.root, "tensors").items():
        assert content == (source.root / name).read_bytes(), name


def test_a_fork_leaves_its_source_as_it_was(source: RunDirectory, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in source.root.rglob("*") if p.is_file()}
    fork(source.root, tmp_path / "fork", checkpoint="000003")
    assert attempt(RunDirectory(tmp_path / "fork"), FakeEngines(raises=0.2, no_hint=0.3)) == 0
    assert {p: p.read_bytes() for p in source.root.rglob("*") if p.is_file()} == before


def test_provenance_and_changes_are_in_the_settings_file_and_in_the_log(source: RunDirectory, tmp_path: Path) -> None:
    changed = settings(source, optim__learning_rate=0.25, schedule__rollouts=4, preset="mine")
    fork(source.root, tmp_path / "fork", config=changed, checkpoint="000003")
    run = RunDirectory(tmp_path / "fork")
    origin = forked_from(run)
    assert origin is not None
    assert (origin["run"], origin["checkpoint"], origin["next_rollout"]) == (str(source.root), "000003", 3)
    assert origin["changed"]["schedule.rollouts"] == [6, 4]
    assert set(origin["changed"]) == {"schedule.rollouts", "optim.learning_rate"}
    assert "optimiser moments and generators" in origin["kept"] and "control file" in origin["reset"]
    assert read_config(run) == changed
    assert forked_from(source) is None
    assert attempt(run, FakeEngines()) == 0
    started = next(read_events(run, 1))["payload"]
    assert started["forked_from"] == {name: origin[name] for name in ("run", "checkpoint", "changed")}
    assert (started["checkpoint"], started["start_rollout"], started["total_rollouts"]) == ("000003", 3, 4)
    assert next(read_events(source, 1))["payload"]["forked_from"] is None


def test_the_log_of_a_fork_stands_alone(source: RunDirectory, tmp_path: Path) -> None:
    """Everything an event speaks of was reported in the same log before."""
    fork(source.root, tmp_path / "fork", checkpoint="000003")
    run = RunDirectory(tmp_path / "fork")
    assert attempt(run, FakeEngines(raises=0.2, no_hint=0.3)) == 0
    known: set[str] = set()
    for event in read_events(run, 1):
        if event["kind"] == "environment":
            known.add(event["payload"]["environment"])
        if event["kind"] in ("episode", "hint", "regret"):
            assert event["payload"]["environment"] in known, event["seq"]
    told = [e for e in read_events(run, 1) if e["kind"] == "memory_added" and e["rollout"] == 3]
    state = json.loads((source.checkpoint(3) / "state" / "state.json").read_text())
    assert [e["payload"]["environment"] for e in told] == [r["environment"] for r in state["memory"]] != []
    original = {e["payload"]["environment"]: e["payload"] for e in read_events(source, 1) if e["kind"] == "hint"}
    hints = [e["payload"] for e in read_events(run, 1) if e["kind"] == "hint" and e["rollout"] == 3]
    assert hints and all(h == original[h["environment"]] for h in hints)


def test_an_attempt_that_begins_where_the_fork_does_reports_it_again(source: RunDirectory, tmp_path: Path) -> None:
    fork(source.root, tmp_path / "fork", checkpoint="000003")
    run = RunDirectory(tmp_path / "fork")
    run.control.write_text('{"id": "s", "attempt": 1, "action": "stop"}\n')
    assert attempt(run, FakeEngines()) == 0
    assert attempt(run, FakeEngines()) == 0
    inherited = [[(e["kind"], e["payload"]) for e in read_events(run, n) if e["kind"] in INHERITED][:4] for n in (1, 2)]
    assert inherited[0] == inherited[1] and len(inherited[0]) == 4
    assert attempt(run, FakeEngines()) == 0, "the third one starts from the fork's own last checkpoint"
    assert not [e for e in read_events(run, 3) if e["kind"] in INHERITED]


def test_a_fork_of_a_fork_knows_what_the_first_one_inherited(source: RunDirectory, tmp_path: Path) -> None:
    fork(source.root, tmp_path / "one", checkpoint="000003")
    fork(tmp_path / "one", tmp_path / "two")
    lines = [json.loads(line) for line in RunDirectory(tmp_path / "two").inherited.read_text().splitlines()]
    first = [json.loads(line) for line in RunDirectory(tmp_path / "one").inherited.read_text().splitlines()]
    assert lines == first
    assert {"environment", "hint", "memory_added"} == {line["kind"] for line in lines}
    for line in lines:
        KINDS[line["kind"]].model_validate(line["payload"])


def test_weights_of_a_fork_are_an_ordinary_directory_in_two_places(source: RunDirectory, tmp_path: Path) -> None:
    fork(source.root, tmp_path / "fork", checkpoint="000003")
    run = RunDirectory(tmp_path / "fork")
    assert damage(run.checkpoint(3)) == ""
    skill = load_file(source.checkpoint(3) / "model" / "model.safetensors")["skill"]
    for directory in (run.start, run.checkpoint(3) / "model"):
        assert (directory / "config.json").is_file()
        assert load_file(directory / "model.safetensors")["skill"] == skill


def test_the_engines_of_a_fork_open_its_own_start_weights(source: RunDirectory, tmp_path: Path) -> None:
    """They are the reference of the KL term (spec 8), and the source's model may be gone."""
    fork(
        source.root,
        tmp_path / "fork",
        config=settings(source, loss__kl_coef=0.01, schedule__rollouts=4),
        checkpoint="000003",
    )
    opened: list[str] = []
    engines = FakeEngines()

    def opens(config: RunConfig, known: dict[str, Any]) -> Any:
        opened.append(config.model.path)
        return engines(config, known)

    run = RunDirectory(tmp_path / "fork")
    assert attempt(run, opens) == 0  # type: ignore[arg-type]
    assert opened == [str(run.start)]
    origin = forked_from(run)
    assert origin is not None and any("reference of the KL term" in r for r in origin["reset"])


def test_settings_that_start_something_afresh_say_so(source: RunDirectory, tmp_path: Path) -> None:
    changed = settings(source, corpus__seed=7, reward__gamma_slow=0.5, memory__size=2)
    made = fork(source.root, tmp_path / "fork", config=changed, checkpoint="000003")
    assert made.reset == [
        "control file", "corpus position", "learning-potential means", "environment memory: cut to the newest 2",
    ]  # fmt: skip
    state = json.loads((RunDirectory(tmp_path / "fork").checkpoint(3) / "state" / "state.json").read_text())
    assert state["corpus"] is None and state["trackers"] == {} and len(state["memory"]) == 2
    assert attempt(RunDirectory(tmp_path / "fork"), FakeEngines()) == 0


def test_commands_to_the_source_are_not_carried_out_again_by_the_fork(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(schedule__rollouts=2))
    run.control.write_text('{"id": "c", "action": "checkpoint"}\n')
    assert attempt(run, FakeEngines()) == 0
    fork(run.root, tmp_path / "fork", config=settings(run, schedule__rollouts=3))
    other = RunDirectory(tmp_path / "fork")
    other.control.write_text('{"id": "d", "action": "checkpoint"}\n')
    assert attempt(other, FakeEngines()) == 0
    assert [e["payload"]["command"] for e in read_events(other, 1) if e["kind"] == "command"] == ["d"]


@pytest.mark.parametrize(
    ("checkpoint", "overrides", "says"),
    [
        ("000003", {"model__path": "/other"}, "model.path '/other' does not go with .* model.path 'builtin:starter'"),
        ("000003", {"engine__learner": "deepspeed"}, "engine.learner 'deepspeed' does not go with .*'plain'"),
        ("000003", {"schedule__rollouts": 3}, "schedule.rollouts 3 leaves nothing to do after checkpoint 000003"),
        (
            "000002",
            {"schedule__regenerate_every": 3, "schedule__designer_delay": 3},
            "schedule.regenerate_every 3 instead of 2 does not go with checkpoint 000002.*both 2 and 3",
        ),
        ("000009", {}, "no checkpoint 000009; there is 000001, 000002"),
    ],
)
def test_changes_that_make_the_state_meaningless_are_refused(
    source: RunDirectory, tmp_path: Path, checkpoint: str, overrides: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        fork(source.root, tmp_path / "fork", config=settings(source, **overrides), checkpoint=checkpoint)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_another_regeneration_interval_fits_where_both_windows_end(source: RunDirectory, tmp_path: Path) -> None:
    changed = settings(source, schedule__regenerate_every=3, schedule__designer_delay=3, schedule__rollouts=8)
    fork(source.root, tmp_path / "fork", config=changed, checkpoint="000006")
    assert attempt(RunDirectory(tmp_path / "fork"), FakeEngines()) == 0
    started = [e for e in read_events(RunDirectory(tmp_path / "fork"), 1) if e["kind"] == "rollout_started"]
    assert [(e["rollout"], e["payload"]["offset"]) for e in started] == [(6, 0), (7, 1)]


def test_a_design_that_waits_is_trained_at_the_temperature_it_was_sampled_at(
    source: RunDirectory, tmp_path: Path
) -> None:
    before = read_config(source).designer.temperature
    fork(source.root, tmp_path / "fork", config=settings(source, designer__temperature=0.25), checkpoint="000003")
    engines = FakeEngines()
    assert attempt(RunDirectory(tmp_path / "fork"), engines) == 0
    rows = [row for batch in engines.learner.batches for row in batch if row.role == "designer"]
    assert {(row.rollout, row.temperature) for row in rows} == {(2, before), (4, 0.25)}


def test_a_damaged_checkpoint_is_passed_over_or_refused_by_name(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(schedule__rollouts=3))
    assert attempt(run, FakeEngines()) == 0
    (run.checkpoint(3) / "state" / "learner.pt").write_bytes(b"")
    more = settings(run, schedule__rollouts=5)
    with pytest.raises(UserError, match=r"000003 of .* is damaged: state/learner.pt"):
        fork(run.root, tmp_path / "fork", config=more, checkpoint="000003")
    assert fork(run.root, tmp_path / "fork", config=more).checkpoint == "000002"
    (run.checkpoint(2) / "COMPLETE").unlink()
    with pytest.raises(UserError, match="no whole checkpoint"):
        fork(run.root, tmp_path / "other")


def test_leftovers_of_a_killed_fork_are_no_obstacle_but_a_used_directory_is(
    source: RunDirectory, tmp_path: Path
) -> None:
    (tmp_path / ".fork.fork" / "checkpoints" / "000003").mkdir(parents=True)
    (tmp_path / "fork").mkdir()
    fork(source.root, tmp_path / "fork", checkpoint="000003")
    assert [p.name for p in tmp_path.iterdir()] == ["fork"]
    with pytest.raises(UserError, match="is not empty"):
        fork(source.root, tmp_path / "fork", checkpoint="000003")


def test_the_command_line_says_what_was_kept_and_changed(
    source: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fork", str(source.root), str(tmp_path / "fork"), "--checkpoint", "000003", "--prepare"]
    assert main([*arguments, "--set", "schedule.rollouts=9"]) == 0
    out = capsys.readouterr().out
    assert (
        "changed: schedule.rollouts 6 -> 9" in out
        and "kept: weights, optimiser" in out
        and "reset: control file" in out
    )
    assert read_config(RunDirectory(tmp_path / "fork")).schedule.rollouts == 9
    assert main([*arguments, "--set", "schedule.rollouts=9"]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_labels_are_no_change() -> None:
    assert changes(fake_config(), fake_config(preset="x", description="y")) == {}


def test_the_plain_learner_takes_optimiser_settings_from_the_fork_and_moments_from_the_checkpoint(
    tmp_path: Path,
) -> None:
    def learner(**optim: float) -> PlainLearner:
        return PlainLearner(tiny_model(layers=1), None, loss=LossConfig(), optim=OptimConfig(**optim), seed=1)

    before = learner(learning_rate=0.01, beta1=0.9, beta2=0.98, weight_decay=0.1)
    row = TrainRow("e", "agent", (1, 2), (3, 4), (1, 1), (-1.0, -2.0), 1.0, 1.0, 0)
    before.update([row], rollout=0)
    before.save_model(tmp_path)
    after = learner(learning_rate=0.02, beta1=0.5, beta2=0.6, weight_decay=0.0)
    after.load_state(tmp_path, before.state())
    group = after.state()["optimizer"]["param_groups"][0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.02, (0.5, 0.6), 0.0)
    assert_equal_states(after.state()["optimizer"]["state"], before.state()["optimizer"]["state"])


def _mark(run: RunDirectory, name: str, value: float | None) -> None:
    marker = read_marker(run.checkpoints / name)
    marker["best"] = {"metric": read_config(run).checkpoint.best_metric, "value": value}
    write_marker(run.checkpoints / name, marker)


def test_a_checkpoint_is_named_by_number_as_best_or_as_latest(source: RunDirectory) -> None:
    metric = read_config(source).checkpoint.best_metric
    before = {path.name: read_marker(path)["best"]["value"] for path in finished(source.checkpoints)}
    try:
        for name in before:
            _mark(source, name, {"000002": 0.7, "000003": 0.9, "000004": 0.9}.get(name))
        chosen = {
            name: choose_checkpoint(source, name, best_metric=metric).name
            for name in ("2", "000002", "best", "latest", "")
        }
        assert chosen == {"2": "000002", "000002": "000002", "best": "000004", "latest": "000006", "": "000006"}
        for name in before:
            _mark(source, name, None)
        with pytest.raises(UserError, match="has a value of"):
            choose_checkpoint(source, "best", best_metric=metric)
        with pytest.raises(UserError, match="has no checkpoint 77; there is 000001"):
            choose_checkpoint(source, "77", best_metric=metric)
    finally:
        for name, value in before.items():
            _mark(source, name, value)
