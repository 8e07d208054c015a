"""The real engines on a tiny random model, with scripted words: what the model draws decides what the script plays.

A random model writes no programs, so designs and hints are scripted. For every agent request the built-in sampler draws a few tokens;
they seed the scripted move. Weights that differ in one bit therefore lead to another run sooner or later, and the plain learner trains
on real rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.trainer.fakes import FakeSampler, byte_tokenizer
from trainer.config import RunConfig
from trainer.learn.plain import PlainLearner
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest, SamplerError
from trainer.rollout.tokens import ChatFormat
from trainer.run import Engines

_DRAWN_TOKENS = 4
_SEEN_TOKENS = 64


def write_tiny_model(directory: Path) -> Path:
    """A random two-layer Qwen3 with the byte tokenizer."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, intermediate_size=64, max_position_embeddings=16384, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


class ScriptedByModel:
    """`Sampler`: the script of `FakeSampler`, seeded by what the real sampler draws."""

    def __init__(self, model: BuiltinSampler, script: FakeSampler) -> None:
        self.context_tokens = model.context_tokens
        self._model, self._script = model, script

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        drawn = self._model.generate(
            [replace(r, prompt_ids=r.prompt_ids[-_SEEN_TOKENS:], max_new_tokens=_DRAWN_TOKENS) for r in requests]
        )
        return self._script.generate([replace(r, seed=_seed(d)) for r, d in zip(requests, drawn, strict=True)])

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._model.load_weights(weights)

    def describe(self) -> Mapping[str, Any]:
        return self._model.describe()

    def close(self) -> None:
        self._model.close()


def _seed(drawn: Sampled | SamplerError) -> int:
    assert isinstance(drawn, Sampled)
    text = repr((drawn.token_ids, [round(x, 7) for x in drawn.logprobs])).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")


def open_tiny_engines(config: RunConfig, known: Mapping[str, Any]) -> Engines:
    """`OpenEngines` over `config.model.path`."""
    directory = Path(config.model.path)
    model = BuiltinSampler.from_directory(
        directory, dtype="fp32", device="cpu", threads=1, context_tokens=config.model.context_tokens, max_batch=32
    )
    learner = PlainLearner.from_directory(
        directory,
        loss=config.loss,
        optim=config.optim,
        dtype="fp32",
        device="cpu",
        seed=1,
        reference_directory=directory,
    )
    tokenizer = byte_tokenizer()
    script = FakeSampler(tokenizer, context_tokens=config.model.context_tokens, faults={"raises": 0.1, "no_hint": 0.3})
    return Engines(ScriptedByModel(model, script), learner, ChatFormat(tokenizer), directory)
