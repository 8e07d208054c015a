from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.trainer.rollout.test_builtin_sampler import good, random_prompt, reference_logprobs, sampler_for
from trainer.rollout.attention import attention_with_log_sum
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.rollout.shared import SharedAttention, SharedPrompt, SharedPrompts

TEMPERATURE = 0.7


def request(prompt: tuple[int, ...], seed: int, new: int = 20) -> SampleRequest:
    return SampleRequest(prompt, new, TEMPERATURE, seed, ())


def groups() -> list[SampleRequest]:
    """Three prompts of 70, 130 and 64 tokens with 5, 9 and 4 sequences of different lengths, and two long prompts that nobody shares."""
    requests = [request(random_prompt(70, 1), i, 5 + 3 * i) for i in range(5)]
    requests += [request(random_prompt(130, 2), 20 + i, 8 + i) for i in range(9)]
    requests += [request(random_prompt(64, 3), 40 + i, 12) for i in range(4)]
    return requests + [request(random_prompt(90 + i, 60 + i), 60 + i, 25) for i in range(2)]


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """For each joined attention: how many prompts were shared, and whether every row shared one."""
    seen: list[tuple[int, bool]] = []
    join = SharedAttention.join

    def counted(self: SharedAttention, *arguments: torch.Tensor) -> torch.Tensor:
        seen.append((len(self.members_SM), self.rows_R is None))
        return join(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SharedAttention, "join", counted)
    return seen


def test_joining_two_attentions_is_one_attention_over_both() -> None:
    # Rows 0 and 3 share a prompt of 5 tokens, row 2 one of 9 tokens, row 1 none; 2 key-value heads of 3 query heads each.
    torch.manual_seed(0)
    first, second = (SharedPrompt(torch.randn(2, 1, 2, length, 8, dtype=torch.float64)) for length in (5, 9))
    q = 2 * torch.randn(4, 2, 3, 8, dtype=torch.float64)
    k, v = torch.randn(2, 4, 2, 4, 8, dtype=torch.float64)
    own, log_sum = attention_with_log_sum(q, k, v, None)
    rows = [first, None, second, first]
    shared = SharedPrompts([first, second]).of(rows)
    joined = shared.join(0, q.flatten(1, 2), own.flatten(1, 2), log_sum.flatten(1, 2)).view_as(q)
    order = torch.tensor([2, 0, 3, 1])
    turned = shared.reordered(order).join(
        0, q.flatten(1, 2)[order], own.flatten(1, 2)[order], log_sum.flatten(1, 2)[order]
    )
    assert torch.equal(turned.view_as(q), joined[order])
    for row, prompt in enumerate(rows):
        keys, values = k[row], v[row]
        if prompt is not None:
            keys = torch.cat((prompt.kv_2LKTD[0, 0], keys), dim=1)
            values = torch.cat((prompt.kv_2LKTD[1, 0], values), dim=1)
        expected = F.scaled_dot_product_attention(q[row][None], keys[None], values[None])[0]
        assert torch.allclose(joined[row], expected, atol=1e-6)


@pytest.mark.parametrize("max_batch", [64, 7])
def test_log_probs_of_sequences_that_share_a_prompt_are_those_of_the_library_forward(
    model_directory: Path, joins: list[tuple[int, bool]], max_batch: int
) -> None:
    requests = groups()
    for one, reply in zip(
        requests, good(sampler_for(model_directory, max_batch=max_batch).generate(requests)), strict=True
    ):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, one, reply)).abs().max() < 1e-4
        assert len(reply.token_ids) == one.max_new_tokens
    assert joins
    if max_batch == 64:
        assert {prompts for prompts, _ in joins} >= {1, 3}  # until the last of a prompt has ended
        assert not joins[0][1]  # beside two that share none


def test_sharing_changes_no_drawn_token(
    model_directory: Path, joins: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = good(sampler_for(model_directory).generate(groups()))
    assert joins
    joins.clear()
    monkeypatch.setattr("trainer.rollout.builtin._SHARED_SEQUENCES", 1000)
    apart = good(sampler_for(model_directory).generate(groups()))
    assert not joins
    assert [a.token_ids for a in together] == [a.token_ids for a in apart]


def test_short_prompts_and_small_groups_are_not_worth_sharing(
    model_directory: Path, joins: list[tuple[int, bool]]
) -> None:
    few = [request(random_prompt(200, 1), i) for i in range(3)]
    short = [request(random_prompt(63, 2), i) for i in range(9)]
    good(sampler_for(model_directory).generate([*few, *short]))
    assert not joins


def test_a_later_turn_continues_what_was_shared(model_directory: Path, joins: list[tuple[int, bool]]) -> None:
    sampler = sampler_for(model_directory)
    first = [request(random_prompt(80, 4), i) for i in range(6)]
    replies = good(sampler.generate(first))
    assert joins
    second = [request(q.prompt_ids + r.token_ids + (5, 6, 7), 9) for q, r in zip(first, replies, strict=True)]
    assert all(sampler._prefixes.find(q.prompt_ids, longest=500)[1] == 99 for q in second)
    for one, reply in zip(second, good(sampler.generate(second)), strict=True):
        assert isinstance(reply, Sampled)
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, one, reply)).abs().max() < 1e-4


def test_bf16_sequences_that_share_a_prompt_stay_close_to_fp32(
    model_directory: Path, joins: list[tuple[int, bool]]
) -> None:
    requests = groups()
    replies = good(sampler_for(model_directory, dtype="bf16").generate(requests))
    assert joins
    for one, reply in zip(requests, replies, strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, one, reply)).abs().mean() < 0.2
