from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.trainer.tiny_model import save_tiny_model, tiny_model
from trainer.errors import InfrastructureError, UserError
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.decoder import DecoderShape, Qwen3Decoder
from trainer.rollout.engine import Sampled, Sampler, SampleRequest, SamplerError
from trainer.rollout.huggingface import HuggingFaceSampler
from trainer.rollout.open import open_sampler
from trainer.weights import load_model

TEMPERATURE = 0.7


def sampler_for(directory: Path, *, max_batch: int = 64, dtype: str = "fp32") -> BuiltinSampler:
    return BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=1, context_tokens=1024, max_batch=max_batch
    )


def random_prompt(length: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, 390, (length,), generator=generator).tolist())


def mixed_requests(count: int = 12, new: int = 30, stop: tuple[int, ...] = ()) -> list[SampleRequest]:
    lengths = [5, 90, 17, 1, 33, 64, 64, 3, 200, 11, 90, 2]
    return [
        SampleRequest(random_prompt(lengths[i % len(lengths)], i), new + i % 5, TEMPERATURE, 1000 + i, stop)
        for i in range(count)
    ]


@lru_cache(maxsize=4)
def library_model(directory: Path) -> Any:
    return load_model(directory, dtype=torch.float32, device="cpu")


def reference_logprobs(directory: Path, request: SampleRequest, reply: Sampled) -> torch.Tensor:
    model = library_model(directory)
    with torch.no_grad():
        logits = model(torch.tensor([request.prompt_ids + reply.token_ids])).logits[0, len(request.prompt_ids) - 1 : -1]
    logps = torch.log_softmax(logits / request.temperature, -1)
    return logps.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]


def good(answers: list[Sampled | SamplerError]) -> list[Sampled]:
    replies = [answer for answer in answers if isinstance(answer, Sampled)]
    assert len(replies) == len(answers), answers
    return replies


@pytest.mark.parametrize("max_batch", [64, 3])
def test_log_probs_are_those_of_the_library_forward_at_the_request_temperature(
    model_directory: Path, max_batch: int
) -> None:
    requests = mixed_requests()
    replies = good(sampler_for(model_directory, max_batch=max_batch).generate(requests))
    for request, reply in zip(requests, replies, strict=True):
        gap = (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, request, reply)).abs().max()
        assert gap < 1e-4
        assert len(reply.token_ids) == request.max_new_tokens
        assert reply.finish == "length"


def test_an_untied_output_head_is_used(tmp_path: Path) -> None:
    directory = save_tiny_model(tmp_path, tied=False)
    requests = mixed_requests(3)
    for request, reply in zip(requests, good(sampler_for(directory).generate(requests)), strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(directory, request, reply)).abs().max() < 1e-4


def test_a_request_draws_the_same_tokens_alone_and_in_any_batch(model_directory: Path) -> None:
    requests = mixed_requests()
    together = good(sampler_for(model_directory).generate(requests))
    refilled = good(sampler_for(model_directory, max_batch=3).generate(requests))
    alone = [good(sampler_for(model_directory).generate([request]))[0] for request in requests]
    for a, b, c in zip(together, refilled, alone, strict=True):
        assert a.token_ids == b.token_ids == c.token_ids


def test_the_same_batch_twice_is_bitwise_equal(model_directory: Path) -> None:
    requests = mixed_requests()
    assert sampler_for(model_directory).generate(requests) == sampler_for(model_directory).generate(requests)


def test_identical_prompts_with_different_seeds_differ_and_still_match_the_forward(model_directory: Path) -> None:
    prompt = random_prompt(40, 7)
    requests = [SampleRequest(prompt, 20, TEMPERATURE, seed, ()) for seed in range(6)]
    replies = good(sampler_for(model_directory).generate(requests))
    assert len({reply.token_ids for reply in replies}) == 6
    for request, reply in zip(requests, replies, strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, request, reply)).abs().max() < 1e-4


def test_sampling_stops_after_a_stop_token_and_keeps_it(model_directory: Path) -> None:
    free = good(sampler_for(model_directory).generate(mixed_requests()))
    stop = Counter(token for reply in free for token in reply.token_ids).most_common(1)[0][0]
    stopped = good(sampler_for(model_directory, max_batch=4).generate(mixed_requests(stop=(stop,))))
    assert any(reply.finish == "stop" for reply in stopped)
    for long, short in zip(free, stopped, strict=True):
        if stop in long.token_ids:
            assert short.token_ids == long.token_ids[: long.token_ids.index(stop) + 1]
            assert short.finish == "stop"
        else:
            assert short.token_ids == long.token_ids
            assert short.finish == "length"


def test_tokens_are_drawn_with_the_probabilities_of_the_tempered_distribution(model_directory: Path) -> None:
    prompt = random_prompt(12, 3)
    draws = good(
        sampler_for(model_directory).generate([SampleRequest(prompt, 1, 0.5, seed, ()) for seed in range(4000)])
    )
    with torch.no_grad():
        logits = load_model(model_directory, dtype=torch.float32, device="cpu")(torch.tensor([prompt])).logits[0, -1]
    probabilities = torch.softmax(logits / 0.5, -1)
    counts = Counter(reply.token_ids[0] for reply in draws)
    for token in probabilities.topk(5).indices.tolist():
        p = probabilities[token].item()
        assert abs(counts[token] / 4000 - p) < 4 * (p * (1 - p) / 4000) ** 0.5 + 1e-3


def test_new_weights_change_what_is_sampled_and_agree_with_the_new_model(model_directory: Path, tmp_path: Path) -> None:
    sampler, requests = sampler_for(model_directory), mixed_requests(4)
    before = good(sampler.generate(requests))
    directory = save_tiny_model(tmp_path, seed=9)
    sampler.load_weights(load_model(directory, dtype=torch.float32, device="cpu").named_parameters())
    after = good(sampler.generate(requests))
    assert all(a.token_ids != b.token_ids for a, b in zip(before, after, strict=True))
    for request, reply in zip(requests, after, strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(directory, request, reply)).abs().max() < 1e-4


def test_incomplete_or_foreign_weights_are_refused(model_directory: Path) -> None:
    sampler = sampler_for(model_directory)
    weights = list(tiny_model(vocab=396).named_parameters())
    with pytest.raises(InfrastructureError, match="not given"):
        sampler.load_weights(weights[1:])
    with pytest.raises(InfrastructureError, match="does not belong"):
        sampler.load_weights([*weights, ("model.extra.weight", torch.zeros(1))])
    with pytest.raises(InfrastructureError, match="has shape"):
        sampler.load_weights([("model.norm.weight", torch.zeros(3))])


def test_a_prompt_that_fills_the_context_is_an_error_of_that_request_only(model_directory: Path) -> None:
    requests = [
        SampleRequest(random_prompt(1024, 1), 5, 1.0, 1, ()),
        SampleRequest(random_prompt(1020, 2), 50, 1.0, 2, ()),
    ]
    too_long, fits = sampler_for(model_directory).generate(requests)
    assert isinstance(too_long, SamplerError)
    assert "1024 tokens" in str(too_long)
    assert isinstance(fits, Sampled)
    assert len(fits.token_ids) == 4


def test_logits_that_are_not_finite_are_a_sampler_error_and_do_not_stay_in_the_cache(model_directory: Path) -> None:
    sampler = sampler_for(model_directory)
    weights = dict(load_model(model_directory, dtype=torch.float32, device="cpu").named_parameters())
    broken = {**weights, "model.norm.weight": torch.full((32,), float("nan"))}
    sampler.load_weights(
        {**broken, "model.layers.0.self_attn.v_proj.weight": torch.full((32, 32), float("nan"))}.items()
    )
    assert all(isinstance(answer, SamplerError) for answer in sampler.generate(mixed_requests(4)))
    sampler.load_weights(weights.items())
    requests = mixed_requests()
    assert sampler.generate(requests) == sampler_for(model_directory).generate(requests)


def test_bf16_stays_close_to_fp32(model_directory: Path) -> None:
    requests = mixed_requests(6)
    for request, reply in zip(
        requests, good(sampler_for(model_directory, dtype="bf16").generate(requests)), strict=True
    ):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(model_directory, request, reply)).abs().mean() < 0.2


def test_a_small_cache_budget_lowers_the_batch_but_not_the_answers(model_directory: Path) -> None:
    requests = mixed_requests()
    free = sampler_for(model_directory)
    tight = BuiltinSampler(free._decoder, context_tokens=1024, max_batch=64, cache_bytes=1)
    assert [a.token_ids for a in good(tight.generate(requests))] == [a.token_ids for a in good(free.generate(requests))]


def test_a_long_request_after_many_short_ones_keeps_the_cache_inside_its_budget(model_directory: Path) -> None:
    decoder = sampler_for(model_directory)._decoder
    bytes_per_token = 2 * 2 * 2 * 16 * 4  # keys and values, layers, key-value heads, head size, fp32
    sampler = BuiltinSampler(decoder, context_tokens=1024, max_batch=64, cache_bytes=64 * 64 * bytes_per_token)
    sampler.generate([SampleRequest(random_prompt(10, i), 5, TEMPERATURE, i, ()) for i in range(64)])
    sampler.generate([SampleRequest(random_prompt(10, i), 400, TEMPERATURE, i, ()) for i in range(2)])
    assert sampler._cache.bytes_per_token == bytes_per_token
    assert sampler._cache.rows * sampler._cache.k.shape[3] <= 64 * 64


def test_many_short_requests_after_few_long_ones_keep_the_cache_inside_its_budget(model_directory: Path) -> None:
    decoder = sampler_for(model_directory)._decoder
    bytes_per_token = 2 * 2 * 2 * 16 * 4
    sampler = BuiltinSampler(decoder, context_tokens=1024, max_batch=64, cache_bytes=4 * 1024 * bytes_per_token)
    sampler.generate([SampleRequest(random_prompt(900, i), 5, TEMPERATURE, i, ()) for i in range(4)])
    sampler.generate([SampleRequest(random_prompt(10, i), 5, TEMPERATURE, i, ()) for i in range(64)])
    assert sampler._cache.bytes_per_token == bytes_per_token
    assert sampler._cache.rows * sampler._cache.k.shape[3] <= 4 * 1024


@pytest.mark.parametrize("heads", [2, 4])
def test_a_sequence_that_is_not_finite_fails_alone(heads: int) -> None:
    """Also the one that takes its row afterwards, and those that share its batch."""
    shape = DecoderShape(
        vocab=64, hidden=32, layers=2, heads=heads, kv_heads=1, head_dim=16, mlp=32, eps=1e-6, rope_theta=1e4, max_positions=512, tied=False
    )  # fmt: skip
    torch.manual_seed(0)
    decoder = Qwen3Decoder(shape, dtype=torch.float32, device=torch.device("cpu"))
    decoder.fill(0.2)
    decoder._embedding[63] = math.nan
    sampler = BuiltinSampler(decoder, context_tokens=512, max_batch=6)
    prompts = [tuple((5 * i + j) % 50 + 1 for j in range(10 + i)) for i in range(30)]
    requests = [SampleRequest(prompt, 40, 1.0, i, ()) for i, prompt in enumerate(prompts)]
    alone = [isinstance(sampler.generate([request])[0], SamplerError) for request in requests]
    together = [isinstance(answer, SamplerError) for answer in sampler.generate(requests)]
    assert together == alone
    assert 0 < sum(alone) < len(alone)


def test_a_later_turn_matches_the_forward_when_earlier_turns_are_in_the_prefix_store(model_directory: Path) -> None:
    sampler = sampler_for(model_directory, max_batch=5)
    contexts = [random_prompt(20 + i, i // 2) for i in range(8)]
    for turn in range(4):
        requests = [SampleRequest(c, 9 + turn, TEMPERATURE, 100 * turn + i, ()) for i, c in enumerate(contexts)]
        replies = good(sampler.generate(requests))
        for request, reply in zip(requests, replies, strict=True):
            assert (
                torch.tensor(reply.logprobs) - reference_logprobs(model_directory, request, reply)
            ).abs().max() < 1e-4
        fresh = good(sampler_for(model_directory).generate(requests))
        assert [a.token_ids for a in fresh] == [a.token_ids for a in replies]
        contexts = [
            c + reply.token_ids + random_prompt(6, 50 + i)
            for i, (c, reply) in enumerate(zip(contexts, replies, strict=True))
        ]


def test_opening_chooses_the_decoder_for_qwen3_and_the_library_for_others(
    model_directory: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=256)).save_pretrained(
        tmp_path
    )

    def opened(path: Path) -> Sampler:
        return open_sampler(path, dtype="fp32", device="cpu", threads=1, context_tokens=256, max_batch=3)

    assert isinstance(opened(model_directory), BuiltinSampler)
    other = opened(tmp_path)
    assert isinstance(other, HuggingFaceSampler)
    requests = [SampleRequest(random_prompt(n, n), 12, TEMPERATURE, n, ()) for n in (5, 40, 5, 17)]
    replies = good(other.generate(requests))
    for request, reply in zip(requests, replies, strict=True):
        assert (torch.tensor(reply.logprobs) - reference_logprobs(tmp_path, request, reply)).abs().max() < 1e-4
        assert good(other.generate([request]))[0].token_ids == reply.token_ids
    with pytest.raises(UserError, match="plain Qwen3"):
        BuiltinSampler.from_directory(tmp_path, dtype="fp32", device="cpu", threads=1, context_tokens=256, max_batch=3)


def test_a_finished_row_does_not_run_out_of_the_models_positions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=128)).save_pretrained(
        tmp_path
    )
    sampler = HuggingFaceSampler.from_directory(
        tmp_path, dtype="fp32", device="cpu", threads=1, context_tokens=128, max_batch=4
    )
    requests = [SampleRequest(random_prompt(n, n), 60, TEMPERATURE, n, ()) for n in (20, 100)]
    replies = good(sampler.generate(requests))
    assert [len(reply.token_ids) for reply in replies] == [60, 28]
    for request, reply in zip(requests, replies, strict=True):
        assert good(sampler.generate([request]))[0].token_ids == reply.token_ids
        assert (torch.tensor(reply.logprobs) - reference_logprobs(tmp_path, request, reply)).abs().max() < 1e-4


def test_the_library_sampler_agrees_with_the_decoder_token_by_token(model_directory: Path) -> None:
    requests = mixed_requests()
    library = HuggingFaceSampler.from_directory(
        model_directory, dtype="fp32", device="cpu", threads=1, context_tokens=1024, max_batch=5
    )
    assert [a.token_ids for a in good(library.generate(requests))] == [
        a.token_ids for a in good(sampler_for(model_directory).generate(requests))
    ]


def test_more_context_than_the_model_has_positions_is_refused(model_directory: Path) -> None:
    with pytest.raises(UserError, match="2048 positions"):
        BuiltinSampler.from_directory(
            model_directory, dtype="fp32", device="cpu", threads=1, context_tokens=4096, max_batch=4
        )
