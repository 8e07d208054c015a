"""`python -m sandbox check`: what this machine allows, tier by tier, told for a person."""

from __future__ import annotations

import platform
import sys

from sandbox.errors import HostError, SandboxUnavailable
from sandbox.facade import Sandbox
from sandbox.host import OVERRIDE, OVERRIDE_WORDS, REFUSAL
from sandbox.isolation.tiers import TIERS
from sandbox.limits import Limits

_SMALLEST = """
class SmallestEnv:
    def __init__(self, max_turns=2, **kwargs):
        self.turns = 0
    def reset(self, seed=None):
        return f"Say anything. {random.Random(seed).random()}", {}
    def step(self, action):
        self.turns += 1
        return f"You said {action}", 0.5, True, False, {"turns": self.turns}
"""


_ADVICE = (
    "run as root with CAP_SYS_ADMIN, or allow unprivileged user namespaces "
    "(kernel.unprivileged_userns_clone, user.max_user_namespaces, an AppArmor profile with `userns`)"
)


def _try_tier(tier: str, limits: Limits) -> tuple[bool, str]:
    """Whether a tier starts, passes its self-test and plays one episode here, and the words for it."""
    try:
        with Sandbox(limits, tier, only=True) as sandbox:
            environment = sandbox.load(_SMALLEST)
            (opened,) = sandbox.reset_many([(environment, 1, 2)])
            if isinstance(opened, Exception):
                return False, f"self-test passed, but the smallest environment failed: {opened}"
            (stepped,) = sandbox.step_many([(opened.episode, "hello")])
            if isinstance(stepped, Exception) or stepped.reward != 0.5:
                return False, f"self-test passed, but the smallest environment answered {stepped}"
            layers = ", ".join([*sandbox.layers, "seccomp without files", "rlimits"])
    except (SandboxUnavailable, HostError) as error:
        return False, str(error).removeprefix(REFUSAL)
    return True, layers


def check() -> tuple[bool, list[str]]:
    """Whether any tier works, and the lines to print."""
    limits = Limits()
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    lines = [f"machine     {kernel}", f"worker      {sys.executable}"]
    reached = ""
    for tier in TIERS:
        works, words = _try_tier(tier, limits)
        lines.append(f"{tier:<12}{'yes' if works else 'no '}  {words}")
        if works and not reached:
            reached = tier
    if reached and reached != TIERS[0]:
        lines.append(f"to raise it {_ADVICE}")
    if reached:
        lines.append(f"chosen      {reached}: the strongest tier that passed every question of its self-test")
    else:
        lines.append("chosen      none: generated code is refused on this machine")
        lines.append(
            f"override    {OVERRIDE}={OVERRIDE_WORDS} runs it all the same, with this user's rights: never where secrets are"
        )
    return bool(reached), lines
