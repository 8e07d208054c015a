"""The fallback sampler: any Hugging Face causal language model, through the library's own forward pass and cache.

Slower than `BuiltinSampler` (keys and values are copied at every step, finished rows idle until their batch ends), same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from trainer.errors import InfrastructureError
from trainer.rollout.engine import Sampled, Sampler, SampleRequest, SamplerError
from trainer.rollout.sampling import DTYPES, UniformStream, draw, finished, room_for
from trainer.rollout.threads import set_threads
from trainer.weights import check_context, load_config, load_model, resolve_device


class HuggingFaceSampler(Sampler):
    """`Sampler` over a transformers model; batches of similar length, left-padded."""

    def __init__(self, model: Any, *, context_tokens: int, max_batch: int = 32, threads: int | None = None) -> None:
        self.context_tokens = context_tokens
        self._model = model.eval()
        self._max_batch = max_batch
        self._threads = threads

    @classmethod
    def from_directory(
        cls,
        path: Path,
        *,
        dtype: Literal["fp32", "bf16"],
        device: str,
        threads: int,
        context_tokens: int,
        max_batch: int = 32,
    ) -> HuggingFaceSampler:
        """Load a model directory. Raises `UserError` when it is unsuitable or made for less context."""
        check_context(load_config(path), path, context_tokens)
        place = resolve_device(device)
        model = load_model(path, dtype=DTYPES[dtype], device=str(place))
        return cls(model, context_tokens=context_tokens, max_batch=max_batch, threads=set_threads(threads, place))

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        """See `Sampler`."""
        answers: dict[int, Sampled | SamplerError] = {}
        limits: dict[int, int] = {}
        for index, request in enumerate(requests):
            limit = room_for(request, self.context_tokens)
            if isinstance(limit, SamplerError):
                answers[index] = limit
            else:
                limits[index] = limit
        order = sorted(limits, key=lambda index: len(requests[index].prompt_ids))
        with torch.inference_mode():
            for start in range(0, len(order), self._max_batch):
                chosen = order[start : start + self._max_batch]
                batch = self._batch([requests[i] for i in chosen], [limits[i] for i in chosen])
                answers |= dict(zip(chosen, batch, strict=True))
        return [answers[index] for index in range(len(requests))]

    def _batch(self, requests: Sequence[SampleRequest], limits: Sequence[int]) -> list[Sampled | SamplerError]:
        device = self._model.device
        longest = max(len(r.prompt_ids) for r in requests)
        ids_BT = torch.tensor(
            [[0] * (longest - len(r.prompt_ids)) + list(r.prompt_ids) for r in requests], device=device
        )
        lengths_B = torch.tensor([len(r.prompt_ids) for r in requests], device=device)
        mask_BT = (torch.arange(longest, device=device)[None] >= longest - lengths_B[:, None]).long()
        positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        temperature_B = torch.tensor([r.temperature for r in requests], device=device)
        streams = [UniformStream(r.seed) for r in requests]
        stops = [frozenset(r.stop_ids) for r in requests]
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in requests]
        answers: list[Sampled | SamplerError | None] = [None] * len(requests)
        cache = None
        for step in range(max(limits)):
            output = self._model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                position_ids=positions_BT,
                past_key_values=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            uniform_B = torch.tensor([stream[step] for stream in streams], device=device)
            tokens_B, logps_B = draw(output.logits[:, -1], temperature_B, uniform_B)
            for row, (token, logp) in enumerate(zip(tokens_B.tolist(), logps_B.tolist(), strict=True)):
                if answers[row] is None:
                    replies[row][0].append(token)
                    replies[row][1].append(logp)
                    answers[row] = finished(*replies[row], stops[row], limits[row])
            if all(answer is not None for answer in answers):
                break
            ids_BT = tokens_B[:, None]
            # A finished row runs on, unread, with its batch and must not leave the model's table of positions.
            positions_BT = (positions_BT[:, -1:] + 1).clamp(max=self.context_tokens - 1)
            mask_BT = torch.cat((mask_BT, torch.ones_like(ids_BT)), dim=1)
        return [answer for answer in answers if answer is not None]

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See `Sampler`. Raises `InfrastructureError` when a weight is missing or unknown."""
        own = dict(self._model.named_parameters())
        missing = set(own)
        for name, tensor in weights:
            if name not in own:
                raise InfrastructureError(f"Weight {name} does not belong to the sampler's model.")
            own[name].copy_(tensor)
            missing.discard(name)
        if missing:
            raise InfrastructureError(f"{len(missing)} weights were not given, first {min(missing)}.")

    def describe(self) -> Mapping[str, Any]:
        return {
            "name": "huggingface",
            "device": str(self._model.device),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "threads": self._threads,
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "max_batch": self._max_batch,
            "context_tokens": self.context_tokens,
        }

    def close(self) -> None:
        """Nothing is held between calls."""
