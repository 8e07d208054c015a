"""Stable seeds: what is drawn depends on names and numbers only, never on the order of calls or on the process."""

from __future__ import annotations

import hashlib
import json

SEED_BITS = 63


def stable_seed(*parts: int | str) -> int:
    """63-bit hash of the parts, the same in every process and on every machine (spec 6).

    The parts are joined as JSON, so ("a", 12) and ("a1", 2) differ.
    """
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


def episode_seed(run_seed: int, environment: str, offset: int, play: int) -> int:
    """Seed of `reset` for one play; both arms use the same one (spec 6: paired)."""
    return stable_seed(run_seed, "episode", environment, offset, play)
