"""Bugs other trainers had in resume (R-1 … R-10), metrics (X-1 … X-7) and stamps (A-9 of our survey), each tried on this one.

One scripted run with faults is the material of most of them: what the trainer reports is compared with what its own log says happened.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.compare import assert_equal_states
from tests.trainer.fakes import FakeEngines, fake_config
from tests.trainer.tiny_model import save_tiny_model
from trainer.checkpoint import Checkpoints
from trainer.config import CheckpointConfig, CorpusConfig, LossConfig, OptimConfig
from trainer.corpus import Corpus, load_corpus
from trainer.errors import UserError
from trainer.eventlog import read_events
from trainer.learn.engine import TrainRow
from trainer.learn.loss import LossTokens, grpo_loss
from trainer.learn.plain import PlainLearner
from trainer.learn.tally import Tally
from trainer.run import attempt, create, read_config
from trainer.rundir import RunDirectory


class Ran:
    """A run with its events and the batches its learner got."""

    def __init__(self, run: RunDirectory, batches: list[list[TrainRow]]) -> None:
        self.run, self.batches = run, batches
        self.events = list(read_events(run, 1))

    def of(self, kind: str, rollout: int | None = None) -> list[dict[str, Any]]:
        return [e["payload"] for e in self.events if e["kind"] == kind and (rollout is None or e["rollout"] == rollout)]

    def metrics(self, rollout: int) -> dict[str, Any]:
        return dict(self.of("metrics", rollout)[0]["values"])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Six rollouts, new sets at 0, 2 and 4; some replies fail, so groups have different sizes."""
    engines = FakeEngines(moves=0.05, no_hint=0.3, syntax=0.2)
    run = create(tmp_path_factory.mktemp("ran") / "run", fake_config(schedule__plays=4, checkpoint__keep_every=1))
    assert attempt(run, engines) == 0
    return Ran(run, engines.learner.batches)


def go_on(source: Ran, root: Path, checkpoint: int) -> Ran:
    """The second attempt of the same run as if it had been killed right after that checkpoint."""
    shutil.copytree(source.run.root, root)
    run = RunDirectory(root)
    for directory in run.checkpoints.iterdir():
        if int(directory.name) > checkpoint:
            shutil.rmtree(directory)
    engines = FakeEngines(moves=0.05, no_hint=0.3, syntax=0.2)
    assert attempt(run, engines) == 0
    resumed = Ran(run, engines.learner.batches)
    resumed.events = list(read_events(run, 2))
    return resumed


# Resume ---------------------------------------------------------------------------------------------------------------


def corpus_of(directory: Path) -> Corpus:
    corpus = load_corpus(CorpusConfig(source=str(directory)))
    assert corpus is not None
    return corpus


def write_documents(directory: Path, *names: str, lines: int = 7) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        text = "".join(json.dumps({"id": f"{name}{i}", "text": f"{name} {i}"}) + "\n" for i in range(lines))
        (directory / f"{name}.jsonl").write_text(text)
    return directory


def test_r1_ten_draws_are_five_a_resume_and_five(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "c", "a")
    whole = [corpus.draw().id for corpus in [corpus_of(source)] for _ in range(10)]
    first = corpus_of(source)
    half = [first.draw().id for _ in range(5)]
    second = corpus_of(source)
    second.load_state(json.loads(json.dumps(first.state())))
    assert half + [second.draw().id for _ in range(5)] == whole
    assert second.drawn == 10


def test_r2_several_files_share_one_position_that_is_saved(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "c", "a", "b", "c")
    first = corpus_of(source)
    for _ in range(4):
        first.draw()
    second = corpus_of(source)
    second.load_state(first.state())
    ids = [first.draw().id for _ in range(20)]
    assert [second.draw().id for _ in range(20)] == ids
    assert {i[0] for i in ids} == {"a", "b", "c"}


def test_r3_a_fresh_run_in_a_used_directory_is_refused(ran: Ran) -> None:
    with pytest.raises(UserError, match="already holds a run"):
        create(ran.run.root, fake_config())


def test_r4_what_a_kill_during_a_save_leaves_is_no_checkpoint(ran: Ran, tmp_path: Path) -> None:
    """Neither a directory written aside, nor one that was renamed but not yet marked."""
    shutil.copytree(ran.run.root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(run.checkpoint(6), run.checkpoints / "tmp-000007")
    shutil.copytree(run.checkpoint(6), run.checkpoint(7))
    (run.checkpoint(7) / "COMPLETE").rename(run.checkpoint(7) / "COMPLETE.part")
    warnings: list[str] = []
    loaded = Checkpoints(run, CheckpointConfig()).newest(warnings.append)
    assert loaded is not None and loaded.name == "000006" and warnings == []
    assert not (run.checkpoints / "tmp-000007").exists()


def test_r5_a_resume_does_the_next_rollout_not_the_last_one_again(ran: Ran, tmp_path: Path) -> None:
    resumed = go_on(ran, tmp_path / "run", 3)
    assert [e["rollout"] for e in resumed.events if e["kind"] == "rollout_started"] == [3, 4, 5]
    drawn = [c["document"] for c in ran.of("candidate") if c["environment"].startswith("r0004")]
    assert [c["document"] for c in resumed.of("candidate")] == drawn


def test_r6_a_resume_inside_a_window_completes_it_with_what_was_seen_before(ran: Ran, tmp_path: Path) -> None:
    """Our accumulation window is the one a design waits for: after checkpoint 3 the set of rollout 2 is half played."""
    resumed = go_on(ran, tmp_path / "run", 3)
    before = {r["environment"]: r for r in ran.of("designer_reward") if r["environment"].startswith("r0002")}
    after = {r["environment"]: r for r in resumed.of("designer_reward") if r["environment"].startswith("r0002")}
    assert before and after == before
    assert resumed.batches[0] == ran.batches[3]


def test_r6b_a_checkpoint_at_the_end_of_a_window_starts_the_next_one(ran: Ran, tmp_path: Path) -> None:
    resumed = go_on(ran, tmp_path / "run", 4)
    started = resumed.of("rollout_started")
    assert [(s["regeneration"], s["offset"]) for s in started] == [(True, 0), (False, 1)]
    assert resumed.of("environment") == ran.of("environment", 4)


def test_r7_the_last_designs_are_trained_and_not_thrown_away(ran: Ran) -> None:
    last = {r.sample for r in ran.batches[5] if r.role == "designer"}
    written = {e["environment"] for e in ran.of("environment") if e["environment"].startswith("r0004")}
    assert written and written <= last
    assert all(r["flushed"] for r in ran.of("designer_reward", 5) if r["environment"] in written)


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), layers=1)


def learner_of(directory: Path) -> PlainLearner:
    return PlainLearner.from_directory(
        directory, loss=LossConfig(), optim=OptimConfig(learning_rate=0.01), dtype="fp32", device="cpu", seed=1,
        reference_directory=directory,
    )  # fmt: skip


def row(advantage: float) -> TrainRow:
    return TrainRow("e", "agent", (5, 6), (7, 8, 9), (1, 1, 1), (-1.0, -2.0, -3.0), advantage, 1.0, 0)


def test_r8_two_steps_are_one_a_resume_and_one_with_the_optimisers_moments(
    model_directory: Path, tmp_path: Path
) -> None:
    whole = learner_of(model_directory)
    for advantage in (1.0, -0.5):
        whole.update([row(advantage)], rollout=0)
    first = learner_of(model_directory)
    first.update([row(1.0)], rollout=0)
    (tmp_path / "model").mkdir()
    first.save_model(tmp_path / "model")
    torch.save(first.state(), tmp_path / "learner.pt")
    second = learner_of(model_directory)
    second.load_state(tmp_path / "model", torch.load(tmp_path / "learner.pt", weights_only=True))
    second.update([row(-0.5)], rollout=0)
    assert_equal_states(dict(second.weights()), dict(whole.weights()))
    assert_equal_states(second.state(), whole.state())
    without = learner_of(tmp_path / "model")
    without.update([row(-0.5)], rollout=0)
    changed = dict(without.weights())
    assert any(not torch.equal(w, changed[n]) for n, w in whole.weights()), "the moments matter"


def test_r9_another_corpus_on_resume_goes_on_with_a_warning_and_every_draw_is_in_it(tmp_path: Path) -> None:
    first = corpus_of(write_documents(tmp_path / "long", "a", lines=50))
    for _ in range(9):
        first.draw()
    other = corpus_of(write_documents(tmp_path / "short", "b", lines=2))
    assert "holds 2 documents, 50 when the checkpoint was written" in other.load_state(first.state())
    assert {other.draw().id for _ in range(30)} == {"b0", "b1"}


def test_r10_weights_without_their_optimiser_are_no_checkpoint(ran: Ran, tmp_path: Path) -> None:
    shutil.copytree(ran.run.root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    (run.checkpoint(6) / "state" / "learner.pt").unlink()
    warnings: list[str] = []
    loaded = Checkpoints(run, CheckpointConfig()).newest(warnings.append)
    assert loaded is not None and loaded.name == "000005"
    assert warnings == ["checkpoint 000006 is damaged and was skipped: state/learner.pt is missing"]
    assert loaded.learner_state["updates"] == 5, "the learning rate is a constant: there is no schedule to run ahead"


# Metrics --------------------------------------------------------------------------------------------------------------


def rewards_by_group(ran: Ran, rollout: int) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for e in ran.of("episode", rollout):
        if e["arm"] == "unhinted" and e["reward"] is not None:
            groups[e["environment"]].append(e["reward"])
    return groups


def test_x1_a_mean_is_over_its_own_count_not_over_means(ran: Ran) -> None:
    found_unequal = False
    for rollout in range(6):
        groups = rewards_by_group(ran, rollout)
        rewards = [r for group in groups.values() for r in group]
        assert ran.metrics(rollout)["win_rate/unhinted"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-12)
        means = [sum(g) / len(g) for g in groups.values()]
        found_unequal |= abs(sum(means) / len(means) - sum(rewards) / len(rewards)) > 1e-6
    assert found_unequal, "groups of different sizes, or the test shows nothing"


def test_x1_metrics_of_an_update_do_not_depend_on_how_it_is_split() -> None:
    """Three tokens and one: entropies 1, 1, 1 and 5 have the mean 2, not 3."""

    def part(entropies: list[float]) -> LossTokens:
        n = len(entropies)
        zero = torch.zeros(n, dtype=torch.float64)
        return LossTokens(zero, zero, zero, None, torch.tensor(entropies, dtype=torch.float64), zero, zero + 0.25)

    values = []
    for split in ([[1.0, 1.0, 1.0], [5.0]], [[1.0, 1.0, 1.0, 5.0]]):
        tally = Tally()
        tally.start_step()
        for entropies in split:
            tokens = part(entropies)
            tally.add(grpo_loss(tokens, LossConfig()), tokens, torch.ones(len(entropies), dtype=torch.bool))
        tally.finish_step(0.0)
        values.append(tally.metrics()["loss/entropy"])
    assert values == [2.0, 2.0]


def test_x2_the_designer_reward_in_the_log_is_the_one_that_is_trained(ran: Ran) -> None:
    rewards = {r["environment"]: r for r in ran.of("designer_reward")}
    rows = [r for batch in ran.batches for r in batch if r.role == "designer"]
    assert rows
    for one in rows:
        told = rewards[one.sample]
        assert one.advantage == told["reward"] == (told["raw"] - told["skill_mean"]) * told["weight"]


def measured(new: list[float], old: list[float], sampler: list[float]) -> dict[str, float | None]:
    tensors = [torch.tensor(values, dtype=torch.float64) for values in (new, old, sampler)]
    zero = torch.zeros(len(new), dtype=torch.float64)
    tokens = LossTokens(tensors[0], tensors[1], tensors[2], None, zero, zero + 1.0, zero + 1.0 / len(new))
    tally = Tally()
    tally.start_step()
    tally.add(grpo_loss(tokens, LossConfig(tis_cap=2.0)), tokens, torch.ones(len(new), dtype=torch.bool))
    tally.finish_step(0.0)
    return tally.metrics()


def test_x3_the_ratio_is_the_policys_own_also_when_the_sampler_correction_is_on() -> None:
    values = measured([-1.0, -1.0], [-1.0, -1.0], [-3.0, -1.5])
    assert (values["policy/ratio_mean"], values["policy/ratio_max"]) == (1.0, 1.0)
    assert values["sampler_gap/logp_abs_mean"] == pytest.approx((2.0 + 0.5) / 2)
    assert values["sampler_gap/logp_abs_max"] == pytest.approx(2.0)
    assert values["sampler_gap/tis_frac"] == pytest.approx(0.5)  # e^2 is above the cap of 2, e^0.5 = 1.65 is not


def test_x4_ratio_statistics_are_taken_before_clipping() -> None:
    values = measured([0.0, -1.0], [-5.0, -1.0], [-5.0, -1.0])
    e5 = 148.4131591025766
    assert values["policy/ratio_max"] == pytest.approx(e5)
    assert values["policy/ratio_mean"] == pytest.approx((e5 + 1) / 2)
    assert values["policy/clip_frac_high"] == pytest.approx(0.5)


def test_x5_episodes_without_reward_are_counted_and_are_in_no_mean(ran: Ran) -> None:
    faults = [e for e in ran.of("episode") if e["reward"] is None]
    assert faults and {e["status"] for e in faults} == {"sampler_error"}
    assert sum(ran.metrics(r)["stop/sampler_error"] for r in range(6)) == len(faults)
    for rollout in range(6):
        episodes = ran.of("episode", rollout)
        assert sum(v for n, v in ran.metrics(rollout).items() if n.startswith("stop/")) == len(episodes)


def test_x6_throughput_is_over_the_time_of_whoever_did_the_work(ran: Ran) -> None:
    """One process samples and learns in turn, so there are no idle machines a denominator could leave out."""
    for rollout in range(6):
        values = ran.metrics(rollout)
        assert values["perf/model_s"] + values["perf/sandbox_s"] <= values["time/rollout"] + 1e-6
        sampled = ran.of("rollout_finished", rollout)[0]["tokens_sampled"]
        seconds = sampled / values["perf/tokens_per_s_sampled"]
        assert 0 < seconds <= values["perf/model_s"] + 1e-9


def test_x7_lengths_are_those_of_what_was_sampled_and_trained(ran: Ran) -> None:
    masks = {row.sample: sum(row.mask) for batch in ran.batches for row in batch if row.role == "agent"}
    episodes = [e for e in ran.of("episode") if e["arm"] == "unhinted" and e["reward"] is not None]
    assert episodes
    for e in episodes:
        assert e["trained_tokens"] == sum(t["reply_tokens"] for t in e["turns"]) == masks[e["episode"]]
    lengths = [e["trained_tokens"] for e in episodes if e["offset"] == 0 and e["episode"].startswith("r0000")]
    assert ran.metrics(0)["episode/reply_tokens_mean"] == pytest.approx(sum(lengths) / len(lengths))


# Metrics of the quality signals, recomputed from the log -------------------------------------------------------------


def test_the_win_rate_bins_are_those_of_the_environments_and_the_middle_ones_are_the_learnable_band(ran: Ran) -> None:
    for rollout in range(6):
        rates = [sum(g) / len(g) for g in rewards_by_group(ran, rollout).values()]
        values, n = ran.metrics(rollout), len(rates)
        assert values["band/below_20"] == sum(r < 0.2 for r in rates) / n
        assert values["band/20_40"] == sum(0.2 <= r < 0.4 for r in rates) / n
        assert values["band/40_60"] == sum(0.4 <= r <= 0.6 for r in rates) / n
        assert values["band/60_80"] == sum(0.6 < r <= 0.8 for r in rates) / n
        assert values["band/above_80"] == sum(r > 0.8 for r in rates) / n
        middle = values["band/20_40"] + values["band/40_60"] + values["band/60_80"]
        assert values["band/learnable_share"] == pytest.approx(middle)


def test_the_regret_interval_is_1_96_standard_errors_around_the_mean(ran: Ran) -> None:
    known = [r["regret"] for r in ran.of("regret", 0) if r["regret"] is not None]
    values = ran.metrics(0)
    assert len(known) >= 2
    mean = sum(known) / len(known)
    error = (sum((k - mean) ** 2 for k in known) / (len(known) - 1) / len(known)) ** 0.5
    assert values["regret/mean"] == pytest.approx(mean) and values["regret/standard_error"] == pytest.approx(error)
    assert values["regret/low"] == pytest.approx(mean - 1.96 * error)
    assert values["regret/high"] == pytest.approx(mean + 1.96 * error)
    assert ran.metrics(1)["regret/low"] is None, "nothing is measured between regenerations"


def test_a_gates_pass_rate_is_over_the_attempts_that_reached_it(ran: Ran) -> None:
    some_failed = False
    for rollout in (0, 2, 4):
        candidates, values = ran.of("candidate", rollout), ran.metrics(rollout)
        failed = [c for c in candidates if c["failed_stage"] == "parse"]
        some_failed |= bool(failed)
        assert values["gates/pass_rate_extract"] == 1.0
        assert values["gates/pass_rate_parse"] == pytest.approx(1 - len(failed) / len(candidates))
        assert values["gates/pass_rate_load"] == 1.0, "only those that parse reach it"
        assert values["gates/pass_rate_audit"] is None, "nobody reached a gate that is off"
    assert some_failed, "the scripted designer forgets a colon now and then"


def test_advantages_have_mean_and_spread_per_role(ran: Ran) -> None:
    for rollout in (0, 2):
        agent = [r.advantage for r in ran.batches[rollout] if r.role == "agent"]
        mean = sum(agent) / len(agent)
        spread = (sum((a - mean) ** 2 for a in agent) / len(agent)) ** 0.5
        values = ran.metrics(rollout)
        assert values["advantage/agent_mean"] == pytest.approx(mean, abs=1e-12)
        assert values["advantage/agent_std"] == pytest.approx(spread)
    assert ran.metrics(0)["advantage/designer_std"] is None, "no design is due in the first rollout"
    assert ran.metrics(2)["advantage/designer_mean"] == pytest.approx(0.0, abs=1e-9), "centred in each skill"


# Stamps ---------------------------------------------------------------------------------------------------------------


def test_a9_a_sample_is_stamped_with_the_weights_that_sampled_it_not_with_those_it_is_trained_on(ran: Ran) -> None:
    for rollout, batch in enumerate(ran.batches):
        assert {r.rollout for r in batch if r.role == "agent"} == {rollout}
        for one in (r for r in batch if r.role == "designer"):
            assert one.rollout == int(one.sample[1:5]) <= rollout
    assert [ran.metrics(r)["staleness/max"] for r in range(6)] == [0, 0, 2, 0, 2, 1]


def test_every_row_is_trained_at_the_temperature_its_role_was_sampled_at(ran: Ran) -> None:
    config = read_config(ran.run)
    assert config.designer.temperature != config.agent.temperature
    assert {(row.role, row.temperature) for batch in ran.batches for row in batch} == {
        ("designer", config.designer.temperature), ("agent", config.agent.temperature),
    }  # fmt: skip
