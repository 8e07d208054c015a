from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.trainer.rollout.test_builtin_sampler import good, mixed_requests, reference_logprobs, sampler_for
from tests.trainer.rollout.test_shared_prompts import groups
from trainer.rollout.attention import GroupedAttention, PaddedAttention, length_groups, reads_rows
from trainer.weights import load_model

CPU = torch.device("cpu")


def numbers(*size: int, seed: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_a_group_ends_where_padding_would_waste_more_than_allowed() -> None:
    # 2 + 8 + 10 tokens are wasted beside 100; a fourth row of 90 would make it 30.
    assert length_groups([100, 98, 92, 90], wasted=20) == [4]
    assert length_groups([100, 98, 92, 90, 90], wasted=20) == [4, 1]
    assert length_groups([100, 90, 90, 40, 40, 39], wasted=20) == [3, 3]
    assert length_groups([7], wasted=0) == [1]
    assert length_groups([7, 7, 6], wasted=0) == [2, 1]


@pytest.mark.parametrize("query_heads", [2, 4])
def test_grouped_attention_is_attention_over_the_tokens_of_each_row(query_heads: int) -> None:
    # 2 key-value heads; cache rows of 700 tokens, of which the sequences use few, in another order than the rows.
    rows, lengths = [3, 0, 4, 2], [690, 30, 29, 1]
    q, k, v = (
        numbers(4, query_heads, 8, seed=0),
        numbers(5, 2, 700, 8, seed=1),
        numbers(5, 2, 700, 8, seed=2),
    )
    attention = GroupedAttention(rows, lengths, room=700, heads=query_heads, kv_heads=2)
    assert attention._sizes == [1, 3]
    out, log_sum = attention.with_log_sum(q, k, v)
    assert torch.equal(attention(q, k, v), out)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        keys, values = (x[row, :, :length].repeat_interleave(query_heads // 2, dim=0) for x in (k, v))
        expected = F.scaled_dot_product_attention(q[i][:, None], keys, values)[:, 0]
        assert torch.allclose(out[i], expected, atol=1e-6)
        scores = (keys @ q[i][:, :, None])[..., 0] / 8**0.5
        assert torch.allclose(log_sum[i], scores.logsumexp(-1), atol=1e-5)


def test_numbers_that_are_not_finite_stay_in_their_row() -> None:
    k, v = numbers(2, 2, 10, 8, seed=1), numbers(2, 2, 10, 8, seed=2)
    attention = GroupedAttention([1, 0], [9, 8], room=10, heads=4, kv_heads=2)
    clean, good_k = attention(q := numbers(2, 4, 8, seed=0), k, v), k.clone()
    k[1, :, 0] = float("nan")
    broken = attention(q, k, v)
    assert broken[0].isnan().all()
    assert torch.equal(broken[1], clean[1])
    fresh = GroupedAttention([1, 0], [9, 8], room=10, heads=4, kv_heads=2)
    assert torch.equal(fresh(q, good_k, v), clean)


def test_padded_and_grouped_attention_agree() -> None:
    lengths = [40, 31, 30, 2]
    q, k, v = numbers(4, 4, 8, seed=0), numbers(4, 2, 50, 8, seed=1), numbers(4, 2, 50, 8, seed=2)
    grouped = GroupedAttention(range(4), lengths, room=50, heads=4, kv_heads=2)
    padded = PaddedAttention(lengths, CPU)
    assert torch.allclose(grouped(q, k, v), padded(q, k, v), atol=1e-6)
    for a, b in zip(grouped.with_log_sum(q, k, v), padded.with_log_sum(q, k, v), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_many_query_heads_on_one_key_value_head_are_padded() -> None:
    assert reads_rows(4, 2, CPU)
    assert not reads_rows(8, 2, CPU)
    assert not reads_rows(4, 2, torch.device("cuda"))


def test_both_attentions_draw_the_same_tokens(model_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [*mixed_requests(), *groups()]
    grouped = good(sampler_for(model_directory).generate(requests))
    monkeypatch.setattr("trainer.rollout.attention._MOST_QUERIES", 0)
    padded = good(sampler_for(model_directory).generate(requests))
    assert [a.token_ids for a in grouped] == [a.token_ids for a in padded]


def test_without_bf16_instructions_rounded_weights_are_multiplied_in_fp32(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.rollout.decoder.multiplies_bf16", lambda: False)
    sampler = sampler_for(model_directory, dtype="bf16")
    assert sampler.describe()["dtype"] == "bfloat16"
    assert sampler.describe()["arithmetic"] == "float32"
    rounded = load_model(model_directory, dtype=torch.bfloat16, device="cpu").float()
    requests = mixed_requests(6)
    for request, reply in zip(requests, good(sampler.generate(requests)), strict=True):
        with torch.no_grad():
            logits = rounded(torch.tensor([request.prompt_ids + reply.token_ids])).logits[0]
        logps = torch.log_softmax(logits[len(request.prompt_ids) - 1 : -1] / request.temperature, -1)
        expected = logps.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert (torch.tensor(reply.logprobs) - expected).abs().max() < 1e-4


def test_with_bf16_instructions_bf16_is_multiplied_in_bf16(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.rollout.decoder.multiplies_bf16", lambda: True)
    sampler = sampler_for(model_directory, dtype="bf16")
    assert sampler.describe()["arithmetic"] == "bfloat16"
    requests = groups()
    for request, reply in zip(requests, good(sampler.generate(requests)), strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, request, reply)).abs().mean() < 0.2
