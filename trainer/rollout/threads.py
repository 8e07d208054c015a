"""How many CPU threads the built-in engines use: measured with a short real decode, fewer threads winning near ties.

Threads that wait by spinning collapse when another process wants a core (two threads lost 72 % of their speed to one busy neighbour,
one thread nothing), so the wait policy matters as much as the count: see `trainer/rollout/openmp.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch

from trainer.rollout.decoder import DecoderShape, KVCache, Qwen3Decoder, Segment

_ADVANTAGE = 1.15  # a larger count must be this much faster: one thread is nearly immune to busy neighbours
_STEPS = 6


def thread_candidates() -> list[int]:
    """1, 2, 4, … up to the cores this process may use, that number included."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = [1]
    while counts[-1] * 2 <= cores:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == cores else [*counts, cores]


def choose_threads(candidates: Sequence[int]) -> int:
    """The fastest of `candidates` for decoding on this machine as it is now; below a second. Leaves torch's thread count as it was.

    Raises `ValueError` when `candidates` is empty or holds a number below 1.
    """
    if not candidates or min(candidates) < 1:
        raise ValueError(f"thread candidates must be positive numbers, got {list(candidates)}")
    ordered = sorted(set(candidates))
    if len(ordered) == 1:
        return ordered[0]
    before = torch.get_num_threads()
    try:
        seconds = {count: _decode_seconds(count) for count in ordered}
    finally:
        torch.set_num_threads(before)
    best = ordered[0]
    for count in ordered[1:]:
        if seconds[best] > seconds[count] * _ADVANTAGE:
            best = count
    return best


def _decode_seconds(threads: int) -> float:
    """Median time of a decode step of 32 sequences by a small random model."""
    torch.set_num_threads(threads)
    shape = DecoderShape(
        vocab=2048, hidden=192, layers=2, heads=4, kv_heads=2, head_dim=48, mlp=512,
        eps=1e-6, rope_theta=10000.0, max_positions=512, tied=True,
    )  # fmt: skip
    device, rows, length = torch.device("cpu"), 32, 192
    decoder = Qwen3Decoder(shape, dtype=torch.float32, device=device)
    decoder.fill(0.02)
    cache = KVCache(shape, dtype=torch.float32, device=device)
    cache.reserve(rows, length + _STEPS + 2)
    times = []
    with torch.inference_mode():
        decoder.prefill([Segment(row=0, start=0, token_ids=range(length))], cache)
        for row in range(1, rows):
            cache.copy_row(0, row, length)
        for step in range(_STEPS + 1):
            start = time.perf_counter()
            decoder.decode([step] * rows, [length + step] * rows, cache)
            times.append(time.perf_counter() - start)
    return sorted(times[1:])[len(times[1:]) // 2]


def set_threads(threads: int, device: torch.device) -> int:
    """Set torch's thread count, measuring it first when `threads` is 0 (on the CPU); returns the count in force."""
    if device.type != "cpu" and threads == 0:
        return torch.get_num_threads()
    count = threads or choose_threads(thread_candidates())
    torch.set_num_threads(count)
    return count
