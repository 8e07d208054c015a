"""The evaluator against a scripted player: what counts as won, what is left out, and that it plays the same twice."""

from __future__ import annotations

import pytest

from tests.trainer.fakes import byte_tokenizer, fake_config
from trainer.experiments.evaluate import Evaluator, Score
from trainer.experiments.sets import EvaluationSet
from trainer.fixed_pool import FrozenEnvironment
from trainer.policy import Policy
from trainer.rollout.engine import Sampled, SamplerError
from trainer.rollout.tokens import ChatFormat
from trainer.run import open_pool

PROGRAM = """
class {name}Env:
    def __init__(self, max_turns=5, **kwargs):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.turn, self.seed = 0, seed
        return "Send \\\\boxed{{N}}.", {{}}

    def step(self, action):
        self.turn += 1
        {step}

    def close(self):
        pass
"""
STEPS = {
    "Second": 'return "again", float(self.turn == 2 and action == "\\\\boxed{1}"), self.turn == 2, False, {}',
    "Never": 'return "again", 0.0, False, False, {}',
    "Half": 'return "over", float(self.seed % 2), True, False, {}',
    "Broken": 'raise ValueError("no")',
    "Cut": 'return "cut", 1.0, False, True, {}',
}


class OneSampler:
    """Always answers one; remembers the seeds it was asked with."""

    context_tokens = 4096

    def __init__(self, reply: str = "\\boxed{1}", finish: str = "stop") -> None:
        self._tokenizer = byte_tokenizer()
        self.reply, self.finish = reply, finish
        self.seeds: list[int] = []

    def generate(self, requests):
        self.seeds += [request.seed for request in requests]
        ids = tuple(self._tokenizer(self.reply + "<|im_end|>")["input_ids"])
        if self.finish == "error":
            return [SamplerError("scripted") for _ in requests]
        return [Sampled(ids, (-0.1,) * len(ids), self.finish) for _ in requests]

    def close(self) -> None:
        pass


def programs(*names: str) -> EvaluationSet:
    code = {name: PROGRAM.format(name=name, step=STEPS[name]) for name in names}
    return EvaluationSet("probe", tuple(FrozenEnvironment(f"{name}-0", "s", code[name]) for name in names))


@pytest.fixture(scope="module")
def pool():
    opened = open_pool(fake_config())
    yield opened
    opened.close()


def play(pool, sampler, *names: str, plays: int = 6) -> Score:
    policy = Policy(sampler, ChatFormat(byte_tokenizer()))
    return Evaluator(policy, pool, fake_config(agent__max_turns=4)).play(programs(*names), plays=plays)


def test_wins_losses_and_running_out_of_turns(pool) -> None:
    score = play(pool, OneSampler(), "Second", "Never", "Cut")
    assert score.by_environment == {
        "Second-0": 1.0,
        "Never-0": 0.0,
        "Cut-0": 0.0,
    }  # cut off by the environment: no reward
    assert (score.plays, score.faults) == (18, 0)
    assert score.win_rate.mean == pytest.approx(1 / 3)
    # Values 1, 0, 0: variance 1/3; half width 4.303 * sqrt(1/9) = 1.4343.
    assert score.win_rate.half == pytest.approx(1.4343, abs=1e-4)


def test_faults_are_no_losses(pool) -> None:
    score = play(pool, OneSampler(), "Broken", "Second", plays=3)
    assert (score.by_environment, score.plays, score.faults) == ({"Second-0": 1.0}, 3, 3)
    broken = play(pool, OneSampler(finish="error"), "Second", plays=2)
    assert (broken.by_environment, broken.plays, broken.faults, broken.win_rate) == ({}, 0, 2, None)
    assert broken.to_dict()["win_rate"] is None


def test_a_reply_that_was_cut_is_a_lost_play(pool) -> None:
    assert play(pool, OneSampler(finish="length"), "Half").by_environment == {"Half-0": 0.0}


def test_seeds_are_the_same_every_time_and_differ_between_plays(pool) -> None:
    first, second = OneSampler(), OneSampler()
    scores = [play(pool, sampler, "Half", plays=40) for sampler in (first, second)]
    assert scores[0] == scores[1]
    assert 0.2 < scores[0].by_environment["Half-0"] < 0.8  # odd and even seeds
    assert first.seeds == second.seeds and len(set(first.seeds)) == 40


def test_families_are_the_part_before_the_dash() -> None:
    score = Score(8, 0, {"Grid-0": 1.0, "Grid-1": 0.5, "Lock-0": 0.0})
    assert score.by_family() == {"Grid": 0.75, "Lock": 0.0}
