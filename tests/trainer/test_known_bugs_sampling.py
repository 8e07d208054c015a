"""Bugs other trainers had in temperature, log-probs and sampling (T-1 … T-9 of our survey), each tried on this one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainer.tiny_model import save_tiny_model, tiny_tokenizer
from trainer.config import LossConfig, OptimConfig
from trainer.errors import UserError
from trainer.learn.engine import TrainRow
from trainer.learn.loss import LossTokens, grpo_loss
from trainer.learn.packed import selected_logprobs
from trainer.learn.plain import PlainLearner
from trainer.presets import load_preset, with_overrides
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, Sampler, SampleRequest, SamplerError
from trainer.rollout.huggingface import HuggingFaceSampler
from trainer.rollout.sampling import draw
from trainer.rollout.tokens import ChatFormat, Conversation
from trainer.seeds import stable_seed

LOG = [math.log(p) for p in (0.5, 0.25, 0.25)]
ENGINES = [BuiltinSampler, HuggingFaceSampler]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def open_engine(kind: Any, directory: Path) -> Any:
    return kind.from_directory(directory, dtype="fp32", device="cpu", threads=1, context_tokens=512, max_batch=4)


def replies(sampler: Sampler, requests: list[SampleRequest]) -> list[Sampled]:
    answers = sampler.generate(requests)
    assert all(isinstance(answer, Sampled) for answer in answers), answers
    return answers  # type: ignore[return-value]


def test_t01_the_learner_divides_logits_by_the_temperature() -> None:
    # Odds 2:1:1 at temperature 1/2 are 4:1:1.
    head = torch.nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(3))
    identity: Any = SimpleNamespace(get_output_embeddings=lambda: head)
    logps, entropy = selected_logprobs(
        identity, torch.tensor([LOG, LOG]), torch.tensor([0, 2]), torch.tensor([0.5, 0.5])
    )
    assert logps.tolist() == pytest.approx([math.log(2 / 3), math.log(1 / 6)])
    assert entropy[0].item() == pytest.approx(-(2 / 3 * math.log(2 / 3) + 2 / 6 * math.log(1 / 6)))


@pytest.mark.parametrize("kind", ENGINES)
def test_t02_the_first_ratio_is_one_at_a_temperature_that_is_not(kind: Any, model_directory: Path) -> None:
    # A sampler that returned log-probs of the untempered distribution would show a ratio of about 2 at 0.6.
    requests = [SampleRequest(tuple(range(10, 20 + i)), 15, 0.6, i, ()) for i in range(6)]
    rows = [
        TrainRow(f"e{i}", "agent", q.prompt_ids, r.token_ids, (1,) * 15, r.logprobs, 1.0, 0.6, 4)
        for i, (q, r) in enumerate(zip(requests, replies(open_engine(kind, model_directory), requests), strict=True))
    ]
    learner = PlainLearner.from_directory(
        model_directory, loss=LossConfig(), optim=OptimConfig(), dtype="fp32", device="cpu", seed=0,
        reference_directory=model_directory,
    )  # fmt: skip
    metrics = learner.update(rows, rollout=4)
    assert metrics["sampler_gap/logp_abs_max"] < 1e-4
    raw = learner.update([replace(row, temperature=1.0) for row in rows], rollout=4)
    assert raw["sampler_gap/logp_abs_mean"] > 0.1


def test_t03_each_of_the_four_log_probs_has_its_own_place() -> None:
    # new -1.0, old -1.1, sampler -1.4, reference -0.7, advantage 1:
    # ratio exp(0.1) = 1.10517, importance exp(0.3) = 1.34986, KL exp(0.3) - 1 - 0.3 = 0.04986.
    one = {"new": -1.0, "old": -1.1, "sampler": -1.4, "reference": -0.7}
    new, old, sampler, reference = (torch.tensor([v], dtype=torch.float64) for v in one.values())
    ones = torch.ones(1, dtype=torch.float64)
    sums = grpo_loss(LossTokens(new, old, sampler, reference, 0 * ones, ones, ones), LossConfig(kl_coef=0.5))
    assert sums.policy.item() == pytest.approx(-1.1051709 * 1.3498588, abs=1e-6)
    assert sums.kl.item() == pytest.approx(0.0498588, abs=1e-6)
    assert sums.ppo_kl.item() == pytest.approx(-0.1)


@pytest.mark.parametrize("path", ["agent.top_p", "designer.top_p", "agent.top_k"])
def test_t04_there_is_no_truncated_sampling_that_could_bias_the_ratio(path: str) -> None:
    with pytest.raises(UserError, match="there is no setting"):
        with_overrides(load_preset("tiny"), {path: 0.8})
    # The last thousandth of the probability is drawn too, with its own log-prob and not a renormalised one.
    tail = [math.log(p) for p in (0.9, 0.099, 0.001)]
    token, logp = draw(torch.tensor([tail]), torch.ones(1), torch.tensor([0.9995]))
    assert (token.item(), logp.item()) == (2, pytest.approx(math.log(0.001), abs=1e-5))


@pytest.mark.parametrize("role", ["agent", "designer", "hint"])
def test_t05_temperature_zero_is_refused_before_anything_starts(role: str) -> None:
    with pytest.raises(UserError, match=rf"{role}.temperature: .*greater than 0"):
        with_overrides(load_preset("tiny"), {f"{role}.temperature": 0})


@pytest.mark.parametrize("kind", ENGINES)
def test_t06_every_reply_has_its_log_probs_without_being_asked(kind: Any, model_directory: Path) -> None:
    requests = [SampleRequest((5, 6, 7), n, 1.0, n, ()) for n in (1, 9)]
    for reply, request in zip(replies(open_engine(kind, model_directory), requests), requests, strict=True):
        assert len(reply.logprobs) == len(reply.token_ids) == request.max_new_tokens
        assert all(p < 0 for p in reply.logprobs)


def test_t07_the_log_prob_is_the_drawn_tokens_and_not_the_likeliest_ones() -> None:
    token, logp = draw(torch.tensor([LOG]), torch.ones(1), torch.tensor([0.8]))
    assert (token.item(), logp.item()) == (2, pytest.approx(math.log(0.25)))


def test_t08_an_end_of_turn_that_is_also_the_padding_token_stays_in_the_mask() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    end = tokenizer.pad_token_id
    conversation = Conversation.start(ChatFormat(tokenizer), [{"role": "user", "content": "Guess."}])
    conversation.append_reply(Sampled((5, 6, end), (-0.1, -0.2, -0.3), "stop"))
    assert conversation.mask == [1, 1, 1]
    assert conversation.logprobs == [-0.1, -0.2, -0.3]


@pytest.mark.parametrize("kind", ENGINES)
def test_t08_prompt_tokens_that_look_like_padding_are_read(kind: Any, model_directory: Path) -> None:
    # Token 0 is what shorter prompts are padded with in the library sampler; in a prompt of its own it is an ordinary token.
    sampler = open_engine(kind, model_directory)
    zeros, others = SampleRequest((0, 0, 5, 0), 8, 1.0, 3, ()), SampleRequest(tuple(range(30, 60)), 8, 1.0, 4, ())
    together = replies(sampler, [zeros, others])[0]
    assert together.token_ids == replies(open_engine(kind, model_directory), [zeros])[0].token_ids
    without = replies(sampler, [replace(zeros, prompt_ids=(5,)), others])[0]
    assert max(abs(a - b) for a, b in zip(together.logprobs, without.logprobs, strict=True)) > 1e-3


def test_t09_a_group_explores_and_every_play_has_its_own_seed(model_directory: Path) -> None:
    # There is one engine, and a seed belongs to a request, not to an engine.
    seeds = [
        stable_seed(0, "agent", "r0000-s00", 0, arm, play, 0) for arm in ("unhinted", "hinted") for play in range(8)
    ]
    assert len(set(seeds)) == 16
    group = [SampleRequest((5, 6, 7), 12, 1.0, seed, ()) for seed in seeds[:8]]
    drawn = replies(open_engine(BuiltinSampler, model_directory), group)
    assert len({reply.token_ids for reply in drawn}) == 8
    assert replies(open_engine(BuiltinSampler, model_directory), group) == drawn


def test_a_request_that_cannot_be_generated_has_no_log_probs_to_mistake_for_some(model_directory: Path) -> None:
    (answer,) = open_engine(BuiltinSampler, model_directory).generate([SampleRequest((), 5, 1.0, 1, ())])
    assert isinstance(answer, SamplerError)
