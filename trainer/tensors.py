"""Token ids, masks and log-probs of a rollout: both arms, accepted and rejected designs, hints (tensors/<rollout>.safetensors).

Flat arrays over all samples: `prompt_ids` int32 [sum P], `token_ids` int32 [sum T], `mask` uint8 [sum T] (1 = sampled),
`sampler_logprobs` float32 [sum T] (0 where the mask is 0). The metadata entry `samples` is JSON: name, role, arm and the four
bounds of each sample in those arrays; it is the only entry, because the bytes of a file with several depend on a hash order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from trainer.eventlog import disk_error, write_refusal

Role = Literal["agent", "designer", "hint", "audit"]


@dataclass
class TensorFile:
    """Collects the samples of one rollout and writes them at its end."""

    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        name: str,
        role: Role,
        *,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        mask: Sequence[int] | None = None,
        arm: str = "",
    ) -> None:
        """Append one sample; without `mask` every token was sampled. All of token_ids, mask and logprobs have length T."""
        mask = [1] * len(token_ids) if mask is None else mask
        assert len(token_ids) == len(mask) == len(logprobs), f"{name}: tokens, mask and log-probs must align"
        start, first = len(self.prompt_ids), len(self.token_ids)
        self.prompt_ids += prompt_ids
        self.token_ids += token_ids
        self.mask += mask
        self.logprobs += logprobs
        bounds = {"prompt": [start, len(self.prompt_ids)], "tokens": [first, len(self.token_ids)]}
        self.samples.append({"name": name, "role": role, "arm": arm, **bounds})

    def write(self, path: Path) -> None:
        """Write aside, then rename. Raises `LimitError` when the disk is full."""
        tensors = {
            "prompt_ids": torch.tensor(self.prompt_ids, dtype=torch.int32),
            "token_ids": torch.tensor(self.token_ids, dtype=torch.int32),
            "mask": torch.tensor(self.mask, dtype=torch.uint8),
            "sampler_logprobs": torch.tensor(self.logprobs, dtype=torch.float32),
        }
        aside = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, aside, metadata={"samples": json.dumps(self.samples)})
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.rename(path)
        except (OSError, SafetensorError) as error:
            aside.unlink(missing_ok=True)
            refused = write_refusal(error)
            if refused is None:
                raise
            raise disk_error(refused, f"the token ids {path.name}") from error
