"""One whole run of the `tiny` preset with scripted engines and the real sandbox, looked at from all sides."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from tests.trainer.fakes import FakeEngines, fake_config
from trainer.diversity import vendi_share
from trainer.eventlog import read_events
from trainer.events import FAULTS, KINDS
from trainer.metrics import METRICS
from trainer.run import attempt, create, read_config
from trainer.rundir import RunDirectory
from trainer.seeds import episode_seed

ROLLOUTS, ENVIRONMENTS, PLAYS, EVERY = 6, 4, 2, 2


class Finished:
    """A finished run, its events and the engines that made it."""

    def __init__(self, root: Path) -> None:
        self.run: RunDirectory = create(root, fake_config())
        self.engines = FakeEngines(syntax=0.2, no_hint=0.6)
        self.code = attempt(self.run, self.engines)
        self.events: list[dict[str, Any]] = list(read_events(self.run, 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind]

    def payloads(self, kind: str) -> list[dict[str, Any]]:
        return [e["payload"] for e in self.of(kind)]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("run") / "run")


def test_the_run_completes(done: Finished) -> None:
    assert done.code == 0
    assert done.payloads("run_state")[-1]["state"] == "completed"


def test_events_are_gapless_valid_and_in_the_files_of_their_rollouts(done: Finished) -> None:
    assert [e["seq"] for e in done.events] == list(range(1, len(done.events) + 1))
    for event in done.events:
        KINDS[event["kind"]].model_validate(event["payload"])
    names = [p.name for p in sorted(done.run.events(1).iterdir())]
    assert names == [f"{r:06d}.jsonl" for r in range(ROLLOUTS)]
    for path in done.run.events(1).iterdir():
        rollouts = {json.loads(line)["rollout"] for line in path.read_text().splitlines()}
        assert rollouts <= {int(path.stem), None}


def test_environments_are_written_every_second_rollout_with_rotating_skills(done: Finished) -> None:
    started = done.payloads("rollout_started")
    assert [s["regeneration"] for s in started] == [True, False] * 3
    assert [s["active_skills"][0] for s in started[::2]] == [
        "Mathematical Reasoning",
        "Spatial Reasoning",
        "Optimization",
    ]
    for added in done.payloads("environment"):
        skills = started[int(added["environment"][1:5])]["active_skills"]
        assert added["skill"] == skills[added["slot"] % 2]


def test_every_rejected_candidate_is_kept_with_stage_reason_and_code(done: Finished) -> None:
    rejected = [c for c in done.payloads("candidate") if not c["accepted"]]
    assert "parse" in {c["failed_stage"] for c in rejected}, "the scripted designer makes syntax errors"
    for candidate in rejected:
        assert candidate["failed_stage"] in ("parse", "not-guessable") and candidate["reason"] and candidate["code"]
        kept = done.run.environment(candidate["environment"]) / "candidates" / f"{candidate['candidate']}.json"
        assert json.loads(kept.read_text())["reply"] == candidate["reply"]


def test_accepted_candidates_and_environments_agree_and_are_on_disk(done: Finished) -> None:
    accepted = {c["environment"]: c for c in done.payloads("candidate") if c["accepted"]}
    environments = {e["environment"]: e for e in done.payloads("environment")}
    assert set(accepted) == set(environments)
    for key, environment in environments.items():
        assert (done.run.environment(key) / "code.py").read_text() == environment["code"] == accepted[key]["code"]
        assert (
            json.loads((done.run.environment(key) / "provenance.json").read_text())["document"]
            == environment["document"]
        )
        assert environment["document"] in {d["document"] for d in done.payloads("document")}


def test_every_attempt_is_grounded_in_a_freshly_drawn_document(done: Finished) -> None:
    candidates = done.payloads("candidate")
    assert done.payloads("metrics")[-1]["values"]["corpus/drawn"] == len(candidates)
    assert len({c["document"] for c in candidates}) > len(candidates) / 2


def test_both_arms_play_the_same_seeds_at_offset_0_and_only_there(done: Finished) -> None:
    episodes = done.payloads("episode")
    config = read_config(done.run)
    for key in {e["environment"] for e in episodes}:
        mine = [e for e in episodes if e["environment"] == key]
        seeds = {(e["arm"], e["offset"]): [] for e in mine}
        for e in mine:
            seeds[e["arm"], e["offset"]].append(e["seed"])
            assert e["seed"] == episode_seed(config.seed, key, e["offset"], e["play"])
        assert not any(arm == "hinted" and offset for arm, offset in seeds)
        if ("hinted", 0) in seeds:
            assert sorted(seeds["hinted", 0]) == sorted(seeds["unhinted", 0])
        assert set(seeds["unhinted", 0]).isdisjoint(seeds["unhinted", 1])


def test_diversity_is_reported_at_every_regeneration_and_only_there(done: Finished) -> None:
    values = [m["values"] for m in done.payloads("metrics")]
    codes = [e["code"] for e in done.payloads("environment")]
    sets = [
        [e["code"] for e in done.payloads("environment") if e["environment"].startswith(f"r000{r}")] for r in (0, 2, 4)
    ]
    # The log has them as they were accepted, the metric by slot: another order of a matrix is another rounding.
    assert [v["diversity/vendi_share"] for v in values[::2]] == pytest.approx([vendi_share(s) for s in sets], abs=1e-12)
    assert values[4]["diversity/vendi_recent_share"] == pytest.approx(vendi_share(codes), abs=1e-12)
    assert values[0]["diversity/vendi_recent_share"] == values[0]["diversity/vendi_share"]
    assert all(v["diversity/vendi_share"] is None for v in values[1::2])


def test_hinted_episodes_show_the_hint_and_are_never_trained(done: Finished) -> None:
    hints = {h["environment"]: h["text"] for h in done.payloads("hint")}
    hinted = [e for e in done.payloads("episode") if e["arm"] == "hinted"]
    assert hinted
    for episode in hinted:
        assert episode["turns"][0]["observation"].endswith(f"\n\nHINT: {hints[episode['environment']]}")
        assert episode["trained_tokens"] == 0
    trained = {row.sample for batch in done.engines.learner.batches for row in batch if row.role == "agent"}
    unhinted = {e["episode"] for e in done.payloads("episode") if e["arm"] == "unhinted" and e["reward"] is not None}
    assert trained == unhinted


def test_rewards_follow_the_status(done: Finished) -> None:
    for episode in done.payloads("episode"):
        last = episode["turns"][-1]
        match episode["status"]:
            case "won":
                assert episode["reward"] == 1.0 and last["terminated"]
            case "turn_limit" | "truncated_by_env":
                assert episode["reward"] == 0.0 and not last["terminated"]
            case status:
                assert (episode["reward"] is None) == (status in FAULTS)


def test_an_environment_without_hint_has_no_hinted_arm_and_no_regret(done: Finished) -> None:
    without = {h["environment"] for h in done.payloads("hint") if h["state"] == "none"}
    assert without
    regrets = {r["environment"]: r for r in done.payloads("regret")}
    for key in without:
        assert regrets[key]["state"] == "no_hint" and regrets[key]["regret"] is None and regrets[key]["hinted_n"] == 0
    rewards = {r["environment"]: r for r in done.payloads("designer_reward")}
    for key in without & set(rewards):
        assert rewards[key]["raw"] == pytest.approx(0.6 * rewards[key]["anchor"])


def test_regret_is_the_difference_of_the_arms(done: Finished) -> None:
    episodes = done.payloads("episode")
    for regret in done.payloads("regret"):
        if regret["state"] != "ok":
            continue
        arms = {
            arm: [
                e["reward"]
                for e in episodes
                if e["environment"] == regret["environment"] and e["arm"] == arm and e["offset"] == 0
            ]
            for arm in ("unhinted", "hinted")
        }
        expected = sum(arms["hinted"]) / PLAYS - sum(arms["unhinted"]) / PLAYS
        assert regret["regret"] == pytest.approx(expected)


def test_designs_are_trained_two_rollouts_later_and_the_last_ones_at_the_end(done: Finished) -> None:
    trained_at: dict[str, int] = {}
    for rollout, batch in enumerate(done.engines.learner.batches):
        for row in batch:
            if row.role == "designer":
                assert row.sample not in trained_at, "a design is trained once"
                trained_at[row.sample] = rollout
                assert row.rollout == int(row.sample[1:5])
    assert {key: at for key, at in trained_at.items() if at < 5} == {
        e["environment"]: int(e["environment"][1:5]) + 2
        for e in done.payloads("environment")
        if e["slot"] < 4 and "r0004" not in e["environment"]
    }
    assert {at for key, at in trained_at.items() if key.startswith("r0004")} == {5}
    flushed = {r["environment"] for r in done.payloads("designer_reward") if r["flushed"]}
    assert flushed == {key for key in trained_at if key.startswith("r0004")}


def test_designer_rewards_are_centred_per_skill_and_use_the_whole_window(done: Finished) -> None:
    episodes = done.payloads("episode")
    for rollout in range(ROLLOUTS):
        due = [e["payload"] for e in done.of("designer_reward") if e["rollout"] == rollout]
        for skill in {d["skill"] for d in due}:
            mine = [d for d in due if d["skill"] == skill]
            assert sum(d["reward"] for d in mine) == pytest.approx(0.0)
        for design in due:
            window = [
                e["reward"] for e in episodes if e["environment"] == design["environment"] and e["arm"] == "unhinted"
            ]
            assert len(window) == EVERY * PLAYS
            assert design["win_rate"] == pytest.approx(sum(window) / len(window))


def test_designer_weight_counts_episodes(done: Finished) -> None:
    first = next(e for e in done.of("designer_reward"))
    due = [e for e in done.of("designer_reward") if e["rollout"] == first["rollout"]]
    agents = [e for e in done.of("episode") if e["rollout"] == first["rollout"] and e["payload"]["arm"] == "unhinted"]
    assert first["payload"]["weight"] == pytest.approx(len(agents) / len(due) * EVERY)


def test_memory_is_written_at_offset_0_and_shown_to_later_designers(done: Finished) -> None:
    assert len(done.payloads("memory_added")) == len(done.payloads("environment"))
    shown = {key for c in done.payloads("candidate") for key in (*c["examples"], *c["counter_examples"])}
    known = {m["environment"]: m for m in done.payloads("memory_added")}
    assert shown <= set(known)
    for candidate in done.payloads("candidate"):
        for key in candidate["examples"]:
            assert known[key]["skill"] == candidate["skill"]


def test_the_old_set_is_retired_after_the_new_one_is_complete(done: Finished) -> None:
    for rollout in (2, 4):
        events = [e for e in done.events if e["rollout"] == rollout]
        kinds = [e["kind"] for e in events]
        retired = [
            i for i, e in enumerate(events) if e["kind"] == "environment_state" and e["payload"]["state"] == "retired"
        ]
        assert min(retired) > max(i for i, kind in enumerate(kinds) if kind == "hint")


def test_tensors_align_and_cover_both_arms_designs_and_hints(done: Finished) -> None:
    for rollout in range(ROLLOUTS):
        with safe_open(done.run.tensors(rollout), "pt") as file:
            samples = json.loads(file.metadata()["samples"])
            ids, mask, logprobs = (file.get_tensor(n) for n in ("token_ids", "mask", "sampler_logprobs"))
        assert len(ids) == len(mask) == len(logprobs) == samples[-1]["tokens"][1]
        assert bool((logprobs[mask == 0] == 0).all()) and bool((logprobs[mask == 1] < 0).all())
        names = {s["name"] for s in samples}
        assert {e["payload"]["episode"] for e in done.of("episode") if e["rollout"] == rollout} <= names
        assert {e["payload"]["candidate"] for e in done.of("candidate") if e["rollout"] == rollout} <= names
        arms = Counter(s["arm"] for s in samples if s["role"] == "agent")
        assert arms["unhinted"] and bool(arms["hinted"]) == (rollout % EVERY == 0)


def test_metrics_are_those_of_the_table_and_agree_with_the_episodes(done: Finished) -> None:
    for rollout, values in enumerate(done.payloads("metrics")):
        assert set(values["values"]) == set(METRICS)
        rewards = [
            e["payload"]["reward"]
            for e in done.of("episode")
            if e["rollout"] == rollout and e["payload"]["arm"] == "unhinted"
        ]
        assert values["values"]["win_rate/unhinted"] == pytest.approx(sum(rewards) / len(rewards))
        assert (values["values"]["win_rate/hinted"] is None) == (rollout % EVERY == 1)
        assert (values["values"]["gates/pass_rate"] is None) == (rollout % EVERY == 1)


def test_gate_metrics_count_every_candidate(done: Finished) -> None:
    for event in done.of("metrics"):
        candidates = [c["payload"] for c in done.of("candidate") if c["rollout"] == event["rollout"]]
        if candidates:
            values = event["payload"]["values"]
            assert values["gates/candidates"] == len(candidates)
            assert values["gates/pass_rate"] == pytest.approx(sum(c["accepted"] for c in candidates) / len(candidates))
            assert values["gates/rejected_parse"] == sum(c["failed_stage"] == "parse" for c in candidates)


def test_weights_reach_the_sampler_after_every_update(done: Finished) -> None:
    assert done.engines.sampler.skill == float(done.engines.learner.skill) != 0.0


def test_checkpoints_of_the_last_two_rollouts_are_left(done: Finished) -> None:
    assert sorted(p.name for p in done.run.checkpoints.iterdir()) == ["000005", "000006"]
    assert [c["name"] for c in done.payloads("checkpoint")] == [f"{r:06d}" for r in range(1, ROLLOUTS + 1)]


def test_config_json_says_what_ran(done: Finished) -> None:
    values = json.loads(done.run.config.read_text())
    assert values["config"]["preset"] == "tiny" and values["format_version"] == 1
    assert {"python", "torch"} <= set(values["versions"]) and values["hardware"]["cores"] >= 1
    assert values["commit"]


def test_phases_of_a_regeneration_come_in_order(done: Finished) -> None:
    phases = [
        e["payload"]["phase"] for e in done.of("phase") if e["rollout"] == 0 and e["payload"]["state"] == "finished"
    ]
    assert phases == ["design", "gates", "hints", "play", "learn", "sync", "save"]


def test_a_finished_save_or_sync_says_that_its_one_unit_is_done(done: Finished) -> None:
    ended = [e["payload"] for e in done.of("phase") if e["payload"]["state"] == "finished"]
    counts = {(p["phase"], p["done"], p["total"]) for p in ended if p["phase"] in ("sync", "save")}
    assert counts == {("sync", 1, 1), ("save", 1, 1)}
