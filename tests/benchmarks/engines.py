"""How fast the built-in engines are beside the library's own generation and a bare training loop: `python -m tests.benchmarks.engines`.

Rates are tokens per second of this process's CPU time, which other load on the machine disturbs little, and per second of wall time.
Compare only rows of one run. `--size` small (1M parameters) or medium (5M); `--quick` for a fifth of the work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.config import LossConfig, OptimConfig
from trainer.learn.engine import TrainRow
from trainer.learn.packed import pack_sequences, packed_hidden, register_packed_attention, selected_logprobs
from trainer.learn.plain import PlainLearner
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.weights import load_model

SIZES = {"small": (2048, 128, 4, 32, 384), "medium": (4096, 256, 6, 64, 768)}


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured: sequences, prompt and new tokens."""

    batch: int
    prompt: int
    new: int


def measured(tokens: int, action: Callable[[], object]) -> tuple[float, float]:
    """Tokens per CPU second and per wall second of the second of two calls."""
    action()
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return tokens / (time.process_time() - cpu), tokens / (time.perf_counter() - wall)


def make_model(directory: Path, size: str) -> None:
    vocab, hidden, layers, head_dim, mlp = SIZES[size]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=head_dim, intermediate_size=mlp, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)


def prompts(count: int, length: int, vocab: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(3, vocab, (length,), generator=generator).tolist()) for _ in range(count)]


def sampler_rows(directory: Path, dtype: Any, work: Work, vocab: int) -> list[tuple[str, float, float]]:
    sampler = BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=torch.get_num_threads(), context_tokens=4096, max_batch=work.batch
    )
    texts = prompts(work.batch, work.prompt, vocab)

    def run(chosen: list[tuple[int, ...]], limits: list[int]) -> None:
        sampler._prefixes.clear()  # the second call must not profit from the first
        answers = sampler.generate(
            [SampleRequest(p, n, 1.0, i, ()) for i, (p, n) in enumerate(zip(chosen, limits, strict=True))]
        )
        assert all(isinstance(answer, Sampled) for answer in answers)

    even = [work.new] * work.batch
    grouped = [texts[i // 8] for i in range(work.batch)]
    # Mixed: four times as many requests of a quarter to the full length on average; refilled as they finish.
    limits = [max(1, work.new * (1 + i * 7 % 16) // 16) for i in range(2 * work.batch)]
    mixed = [texts[i % work.batch][: work.prompt * (4 + i * 5 % 13) // 16] for i in range(2 * work.batch)]
    return [
        ("sampler, distinct prompts", *measured(sum(even), lambda: run(texts, even))),
        ("sampler, groups of 8 share a prompt", *measured(sum(even), lambda: run(grouped, even))),
        ("sampler, mixed lengths, refilled", *measured(sum(limits), lambda: run(mixed, limits))),
    ]


def turns_rows(directory: Path, dtype: Any, work: Work, vocab: int) -> list[tuple[str, float, float]]:
    """Six turns of 12 sampled and 12 observed tokens: what playing costs, with and without earlier turns kept."""
    sampler = BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=torch.get_num_threads(), context_tokens=4096, max_batch=work.batch
    )
    observations = prompts(6, 12, vocab)

    def play(*, keep: bool) -> None:
        contexts = prompts(work.batch, work.prompt, vocab)
        sampler._prefixes.clear()
        for observation in observations:
            answers = sampler.generate([SampleRequest(c, 12, 1.0, i, ()) for i, c in enumerate(contexts)])
            contexts = [
                c + a.token_ids + observation for c, a in zip(contexts, answers, strict=True) if isinstance(a, Sampled)
            ]
            if not keep:
                sampler._prefixes.clear()

    tokens = 6 * 12 * work.batch
    return [
        ("six turns, earlier turns kept", *measured(tokens, lambda: play(keep=True))),
        ("six turns, computed again", *measured(tokens, lambda: play(keep=False))),
    ]


def library_rows(directory: Path, dtype: torch.dtype, work: Work, vocab: int) -> list[tuple[str, float, float]]:
    model = load_model(directory, dtype=dtype, device="cpu").eval()
    ids = torch.tensor(prompts(work.batch, work.prompt, vocab))

    def run(cache: str) -> None:
        with torch.inference_mode():
            model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=work.new, min_new_tokens=work.new, do_sample=True,
                top_k=0, pad_token_id=0, cache_implementation=cache, disable_compile=True,
            )  # fmt: skip

    return [
        (f"transformers.generate, {cache} cache", *measured(work.new * work.batch, lambda cache=cache: run(cache)))
        for cache in ("dynamic", "static")
    ]


def learner_rows(directory: Path, vocab: int, rows: int, length: int) -> list[tuple[str, float, float]]:
    texts = prompts(rows, length, vocab)
    half = length // 2
    batch = [
        TrainRow(f"r{i}", "agent", t[:half], t[half:], (1,) * half, (-8.0,) * half, float(1 - 2 * (i % 2)), 1.0, 0)
        for i, t in enumerate(texts)
    ]
    budget = 4 * length
    attention = register_packed_attention()
    ours, model = (load_model(directory, dtype=torch.float32, device="cpu", attention=attention) for _ in range(2))
    learner = PlainLearner(ours, None, loss=LossConfig(), optim=OptimConfig(micro_batch_tokens=budget), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def bare() -> None:
        optimizer.zero_grad()
        for start in range(0, rows, 4):
            pack = pack_sequences(texts[start : start + 4])
            places = torch.cat([torch.arange(b - half - 1, b - 1) for b in pack.bounds[1:]])
            targets = pack.token_ids_T[places + 1]
            logps, _ = selected_logprobs(model, packed_hidden(model, pack)[places], targets, torch.ones(len(places)))
            (-logps.mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return [
        ("learner, one update", *measured(rows * length, lambda: learner.update(batch, rollout=0))),
        ("bare packed loop", *measured(rows * length, bare)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=sorted(SIZES), default="medium")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="of the samplers")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["sampler", "library", "turns", "learner"], help="one part")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work = Work(32, 150, 60) if options.quick else Work(64, 300, 200)
    vocab = SIZES[options.size][0]
    number = torch.float32 if options.dtype == "fp32" else torch.bfloat16
    print(f"{options.size} model, {options.dtype}, {options.threads} thread(s), {work}")
    print(f"{'':40}{'tok / CPU s':>14}{'tok / wall s':>14}")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        make_model(directory, options.size)
        parts: dict[str, Callable[[], list[tuple[str, float, float]]]] = {
            "sampler": lambda: sampler_rows(directory, options.dtype, work, vocab),
            "library": lambda: library_rows(directory, number, work, vocab),
            "turns": lambda: turns_rows(directory, options.dtype, work, vocab),
            "learner": lambda: learner_rows(directory, vocab, 8, 256 if options.quick else 1024),
        }
        for part in [parts[options.only]] if options.only else parts.values():
            for name, cpu, wall in part():
                print(f"{name:40}{cpu:14.0f}{wall:14.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
