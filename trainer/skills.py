"""Which skills are active, and which slot is for which (spec 2, step 1)."""

from __future__ import annotations

from collections.abc import Sequence


def active_skills(skills: Sequence[str], *, active: int, rollout: int, interval: int) -> list[str]:
    """The window of `active` skills at `rollout`; it moves on by `active` at every regeneration, round-robin.

    All skills when `active` is 0 or at least their number.
    """
    if active <= 0 or active >= len(skills) or interval <= 0:
        return list(skills)
    start = (rollout // interval * active) % len(skills)
    return [skills[(start + i) % len(skills)] for i in range(active)]


def slot_skill(active: Sequence[str], slot: int) -> str:
    """Skill of a slot: slots take the active skills in turn."""
    return active[slot % len(active)]
