"""The built-in sampler: continuous batching over the hand-written Qwen3 decoder. CPU and one GPU, fp32 and bf16.

Sequences occupy the first rows of the key-value cache; when some finish, the last rows move into the holes and waiting requests fill
the end, so every decode step runs on a full block. Identical prompts are prefilled once, and long ones are stored and read once for all
their sequences; a prompt that continues an earlier sequence is prefilled only from there on. Every request draws from its own generator,
so what it samples does not depend on its batch mates (up to rounding of the logits).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from trainer.errors import UserError
from trainer.rollout.decoder import DecoderShape, KVCache, Qwen3Decoder, Segment, unsupported_reason
from trainer.rollout.engine import Sampled, Sampler, SampleRequest, SamplerError
from trainer.rollout.prefixes import PrefixStore
from trainer.rollout.sampling import DTYPES, UniformStream, draw, finished, room_for
from trainer.rollout.shared import SharedAttention, SharedPrompt, SharedPrompts
from trainer.rollout.threads import set_threads
from trainer.weights import check_context, load_config, read_weights, resolve_device

_PREFILL_TOKENS = 1024  # tokens of one prefill pass: large enough for full speed, small enough for the caches

_RESERVED_TOKENS = 256  # new tokens the cache has room for before it must grow

# From here on reading a prompt once for all its sequences saves more than joining two attentions costs.
_SHARED_TOKENS = 64
_SHARED_SEQUENCES = 4


@dataclass(slots=True)
class _Sequence:
    """One sequence in the cache: `length` tokens of it are stored, the last sampled token is not yet.

    Those of `shared` are stored there, all others in the sequence's row.
    """

    index: int
    request: SampleRequest
    limit: int
    stop: frozenset[int]
    uniforms: UniformStream
    length: int
    shared: SharedPrompt | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def shared_length(self) -> int:
        return self.shared.length if self.shared is not None else 0

    @property
    def row_length(self) -> int:
        """Tokens in the sequence's own cache row."""
        return self.length - self.shared_length


class BuiltinSampler(Sampler):
    """`Sampler` over `Qwen3Decoder`. Not thread-safe."""

    def __init__(
        self,
        decoder: Qwen3Decoder,
        *,
        context_tokens: int,
        max_batch: int = 128,
        threads: int | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        """`cache_bytes` bounds the key-value cache of the sequences in flight (default: a quarter of the RAM, or half the GPU)."""
        self.context_tokens = context_tokens
        self._decoder = decoder
        self._max_batch = max_batch
        self._threads = threads
        self._cache_bytes = cache_bytes or _default_cache_bytes(decoder.device)
        self._cache = self._new_cache()
        self._prefixes = PrefixStore(self._cache_bytes // 4)
        self._shared: tuple[tuple[SharedPrompt | None, ...], SharedPrompts, SharedAttention] | None = None

    @classmethod
    def from_directory(
        cls,
        path: Path,
        *,
        dtype: Literal["fp32", "bf16"],
        device: str,
        threads: int,
        context_tokens: int,
        max_batch: int = 128,
    ) -> BuiltinSampler:
        """Load a Qwen3 model directory. `threads` 0 measures; `device` is "auto", "cpu" or "cuda".

        Raises `UserError` when the model is not a plain Qwen3 (use `open_sampler`), or is made for less context.
        """
        config = load_config(path)
        reason = unsupported_reason(config)
        if reason is not None:
            raise UserError(f"{path}: the built-in decoder runs plain Qwen3 models, this one has {reason}.")
        check_context(config, path, context_tokens)
        place = resolve_device(device)
        decoder = Qwen3Decoder(DecoderShape.from_config(config), dtype=DTYPES[dtype], device=place)
        decoder.load(read_weights(path))
        return cls(decoder, context_tokens=context_tokens, max_batch=max_batch, threads=set_threads(threads, place))

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See `Sampler`. Raises `InfrastructureError` when a weight is missing or of another shape."""
        self._prefixes.clear()
        self._decoder.load(weights)

    def describe(self) -> Mapping[str, Any]:
        return {
            "name": "builtin",
            "device": str(self._decoder.device),
            "dtype": str(self._decoder.dtype).removeprefix("torch."),
            "arithmetic": str(self._decoder.arithmetic).removeprefix("torch."),
            "threads": self._threads,
            "parameters": self._decoder.parameters(),
            "max_batch": self._max_batch,
            "context_tokens": self.context_tokens,
        }

    def close(self) -> None:
        """Free the caches."""
        self._cache = self._new_cache()
        self._prefixes.clear()

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        """See `Sampler`. A prompt that leaves no room in the context, and logits that are not finite, are that request's error."""
        answers: dict[int, Sampled | SamplerError] = {}
        waiting: list[_Sequence] = []
        for index, request in enumerate(requests):
            limit = room_for(request, self.context_tokens)
            if isinstance(limit, SamplerError):
                answers[index] = limit
                continue
            stop, stream = frozenset(request.stop_ids), UniformStream(request.seed)
            waiting.append(_Sequence(index, request, limit, stop, stream, len(request.prompt_ids)))
        # Neighbours in this order have equal or similar prompts: one prefill serves equal ones, and little attention is wasted.
        waiting.sort(key=lambda s: (len(s.request.prompt_ids), s.request.prompt_ids), reverse=True)
        with torch.inference_mode():
            self._run(waiting, answers)
        if any(isinstance(answer, SamplerError) for answer in answers.values()):
            # They may hold numbers that are not finite.
            self._cache = self._new_cache()
            self._prefixes.clear()
        self._shared = None
        return [answers[index] for index in range(len(requests))]

    def _run(self, waiting: list[_Sequence], answers: dict[int, Sampled | SamplerError]) -> None:
        """Decode everything in `waiting` (taken from its end), writing into `answers`."""
        batch = self._rows(waiting)
        active: list[_Sequence] = []
        while waiting or active:
            free = batch - len(active)
            # Refills are gathered a little, so that a prefill pass has some width.
            if waiting and (free >= max(1, batch // 8) or not active):
                new = [waiting.pop() for _ in range(min(free, len(waiting)))]
                first = len(active)
                active += new
                self._emit(new, self._prefill(new, first))
                self._retire(active, answers)
            if not active:
                continue
            self._cache.reserve(batch, max(s.row_length for s in active) + 1)
            logits_BV = self._decoder.decode(
                [s.token_ids[-1] for s in active], [s.row_length for s in active], self._cache,
                shared=self._shared_attention(active), shared_lengths=[s.shared_length for s in active],
            )  # fmt: skip
            for sequence in active:
                sequence.length += 1
            self._emit(active, logits_BV)
            self._retire(active, answers)

    def _rows(self, waiting: Sequence[_Sequence]) -> int:
        """Sequences in flight: the batch limit, or fewer when their caches at full length would not fit the memory."""
        longest = max((len(s.request.prompt_ids) + s.limit for s in waiting), default=1)
        fitting = max(1, self._cache_bytes // (longest * self._cache.bytes_per_token))
        rows = max(1, min(self._max_batch, len(waiting), fitting))
        # An earlier call left many short rows or few long ones: with this call's lengths or rows they would not fit together.
        grown = max(self._cache.rows, rows) * max(self._cache.tokens, longest)
        if grown * self._cache.bytes_per_token > self._cache_bytes:
            self._cache = self._new_cache()
        return rows

    def _prefill(self, new: Sequence[_Sequence], first: int) -> torch.Tensor:
        """Fill cache rows `first` … with the prompts of `new`, equal ones once; returns the logits after each, `[len(new), V]`."""
        self._cache.reserve(first + len(new), max(s.length + min(s.limit, _RESERVED_TOKENS) for s in new))
        leaders: dict[tuple[int, ...], int] = {}
        for offset, sequence in enumerate(new):
            leaders.setdefault(sequence.request.prompt_ids, offset)
        segments = [self._continue_prefix(prompt, first + offset) for prompt, offset in leaders.items()]
        logits, start, tokens = [], 0, 0
        for end, segment in enumerate(segments, start=1):
            tokens += len(segment.token_ids)
            if tokens >= _PREFILL_TOKENS or end == len(segments):
                logits.append(self._decoder.prefill(segments[start:end], self._cache))
                start, tokens = end, 0
        places = {prompt: place for place, prompt in enumerate(leaders)}
        shared = self._share(new, {prompt: first + offset for prompt, offset in leaders.items()})
        for offset, sequence in enumerate(new):
            leader = leaders[sequence.request.prompt_ids]
            sequence.shared = shared.get(sequence.request.prompt_ids)
            if leader != offset and sequence.shared is None:
                self._cache.copy_row(first + leader, first + offset, sequence.length)
        return torch.cat(logits)[[places[s.request.prompt_ids] for s in new]]

    def _share(
        self, new: Sequence[_Sequence], rows: Mapping[tuple[int, ...], int]
    ) -> dict[tuple[int, ...], SharedPrompt]:
        """The prompts of `new` worth sharing, taken out of the cache rows where they were just computed."""
        if self._decoder.device.type != "cpu":
            return {}
        counts = Counter(sequence.request.prompt_ids for sequence in new)
        return {
            prompt: SharedPrompt(self._cache.read_row(rows[prompt], len(prompt)))
            for prompt, count in counts.items()
            if count >= _SHARED_SEQUENCES and len(prompt) >= _SHARED_TOKENS
        }

    def _shared_attention(self, active: Sequence[_Sequence]) -> SharedAttention | None:
        """What the rows share in this step; laid out again only when it is not what it was in the step before."""
        wanted = tuple(sequence.shared for sequence in active)
        if not any(wanted):
            self._shared = None
            return None
        if self._shared is None or self._shared[0] != wanted:
            prompts = [prompt for prompt in dict.fromkeys(wanted) if prompt is not None]
            # Rows that only moved need no new layout of the prompts.
            same = self._shared is not None and set(prompts) == {p for p in self._shared[0] if p is not None}
            layout = self._shared[1] if same and self._shared is not None else SharedPrompts(prompts)
            self._shared = (wanted, layout, layout.of(wanted))
        return self._shared[2]

    def _continue_prefix(self, prompt: tuple[int, ...], row: int) -> Segment:
        """Fill a cache row with what is known of the prompt; returns the rest, at least its last token."""
        kv, shared = self._prefixes.find(prompt, longest=len(prompt) - 1)
        if kv is not None:
            self._cache.write_row(row, kv, shared)
        return Segment(row, shared, prompt[shared:])

    def _emit(self, sequences: Sequence[_Sequence], logits_BV: torch.Tensor) -> None:
        """Draw the next token of each sequence."""
        device = logits_BV.device
        temperature_B = torch.tensor([s.request.temperature for s in sequences], device=device)
        uniform_B = torch.tensor([s.uniforms[len(s.token_ids)] for s in sequences], device=device)
        tokens_B, logps_B = draw(logits_BV, temperature_B, uniform_B)
        for sequence, token, logp in zip(sequences, tokens_B.tolist(), logps_B.tolist(), strict=True):
            sequence.token_ids.append(token)
            sequence.logprobs.append(logp)

    def _retire(self, active: list[_Sequence], answers: dict[int, Sampled | SamplerError]) -> None:
        """Answer the finished sequences and move the last rows into their places."""
        for row in range(len(active) - 1, -1, -1):
            sequence = active[row]
            answer = finished(sequence.token_ids, sequence.logprobs, sequence.stop, sequence.limit)
            if answer is None:
                continue
            answers[sequence.index] = answer
            if isinstance(answer, SamplerError):
                self._cache.clear_row(row)  # it may hold NaN, which spreads even with weight 0
            else:
                known = (*sequence.request.prompt_ids, *sequence.token_ids)[: sequence.length]
                kv_2LKTD = self._cache.read_row(row, sequence.row_length)
                if sequence.shared is not None:
                    kv_2LKTD = torch.cat((sequence.shared.kv_2LKTD, kv_2LKTD), dim=3)
                self._prefixes.add(known, kv_2LKTD)
            last = active.pop()
            if last is not sequence:
                self._cache.copy_row(len(active), row, last.row_length)
                active[row] = last

    def _new_cache(self) -> KVCache:
        return KVCache(self._decoder.shape, dtype=self._decoder.dtype, device=self._decoder.device)


def _default_cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return free // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
