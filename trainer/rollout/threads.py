"""How many CPU threads the built-in engines use: measured with a short real decode, fewer threads winning near ties.

Threads that wait by spinning collapse when another process wants a core (two threads lost 72 % of their speed to one busy neighbour,
one thread nothing), so the wait policy matters as much as the count: see `trainer/rollout/openmp.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch

from trainer.rollout.decoder import DecoderShape, KVCache, Qwen3Decoder

_ADVANTAGE = 1.15  # a larger count must be this much faster: one thread is nearly immune to busy neighbours
_STEPS = 5
_BUDGET_S = 0.8  # on an overloaded machine the measurement ends here, and the counts not reached are not chosen


def thread_candidates() -> list[int]:
    """1, 2, 4, … up to the cores this process may use, that number included."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = [1]
    while counts[-1] * 2 <= cores:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == cores else [*counts, cores]


def choose_threads(candidates: Sequence[int]) -> int:
    """The fastest of `candidates` for decoding on this machine as it is now; about half a second. Leaves torch's thread count as it was.

    Raises `ValueError` when `candidates` is empty or holds a number below 1.
    """
    if not candidates or min(candidates) < 1:
        raise ValueError(f"thread candidates must be positive numbers, got {list(candidates)}")
    ordered = sorted(set(candidates))
    best = ordered[0]
    if len(ordered) == 1:
        return best
    before, deadline = torch.get_num_threads(), time.perf_counter() + _BUDGET_S
    try:
        torch.set_num_threads(best)
        bench = _DecodeBench()
        fastest = bench.seconds(best, deadline)
        for count in ordered[1:]:
            if time.perf_counter() > deadline:
                break
            taken = bench.seconds(count, deadline)
            if fastest > taken * _ADVANTAGE:
                best, fastest = count, taken
    finally:
        torch.set_num_threads(before)
    return best


class _DecodeBench:
    """Decode steps of 32 sequences of 192 tokens by a small random model."""

    def __init__(self) -> None:
        shape = DecoderShape(
            vocab=2048, hidden=256, layers=2, heads=4, kv_heads=2, head_dim=64, mlp=768,
            eps=1e-6, rope_theta=10000.0, max_positions=512, tied=True,
        )  # fmt: skip
        self._rows, self._length = 32, 192
        self._decoder = Qwen3Decoder(shape, dtype=torch.float32, device=torch.device("cpu"))
        self._decoder.fill(0.02)
        self._cache = KVCache(shape, dtype=torch.float32, device=torch.device("cpu"))
        self._cache.reserve(self._rows, self._length + 1)

    @torch.inference_mode()
    def seconds(self, threads: int, deadline: float) -> float:
        """Median of a few steps, fewer when the deadline passes."""
        torch.set_num_threads(threads)
        times: list[float] = []
        for _ in range(_STEPS + 1):  # the first starts the threads
            start = time.perf_counter()
            self._decoder.decode([1] * self._rows, [self._length] * self._rows, self._cache)
            times.append(time.perf_counter() - start)
            if time.perf_counter() > deadline:
                break
        return sorted(times)[len(times) // 2]


def set_threads(threads: int, device: torch.device) -> int:
    """Set torch's thread count, measuring it first when `threads` is 0 (on the CPU); returns the count in force."""
    if device.type != "cpu" and threads == 0:
        return torch.get_num_threads()
    count = threads or choose_threads(thread_candidates())
    torch.set_num_threads(count)
    return count
