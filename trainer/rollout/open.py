"""Opening the built-in sampler that fits a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.decoder import unsupported_reason
from trainer.rollout.engine import Sampler
from trainer.rollout.huggingface import HuggingFaceSampler
from trainer.weights import load_config


def open_sampler(
    path: Path, *, dtype: Literal["fp32", "bf16"], device: str, threads: int, context_tokens: int, max_batch: int
) -> Sampler:
    """`BuiltinSampler` for plain Qwen3 models, `HuggingFaceSampler` for every other architecture transformers knows.

    Raises `UserError` when the directory is unsuitable.
    """
    kind = BuiltinSampler if unsupported_reason(load_config(path)) is None else HuggingFaceSampler
    return kind.from_directory(
        path, dtype=dtype, device=device, threads=threads, context_tokens=context_tokens, max_batch=max_batch
    )
