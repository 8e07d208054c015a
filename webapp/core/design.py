"""Made-up content for the /design page, which shows every component. Nothing here is a result of a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

SOURCE = '''"""A tank whose valves must be balanced before it runs dry."""

import random


class TankBalanceEnv:
    """Two tanks, three hidden valves; the level is revealed only by probing."""

    def __init__(self, max_turns: int = 12, **kwargs):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.valves = [rng.randint(0, 3) for _ in range(3)]
        self.turn = 0
        return f"Three valves, each 0-3. Probe with \\\\boxed{{probe i v}}.", {}

    def step(self, action):
        self.turn += 1
        won = action == r"\\boxed{%s}" % " ".join(map(str, self.valves))
        return ("open" if won else "still unbalanced"), float(won), won, False, {}
'''

HOSTILE = (
    "<img src=x onerror=alert(1)> <b hx-get=/>not bold</b>\n"
    "right-to-left override: abc\u202edef\u202c, zero width: a\u200bb, escape: \x1b[31mred\x1b[0m, nul: \x00"
)


class SampleForm(forms.Form):
    """One field of every kind."""

    name = forms.CharField(label="Name", help_text="What the run is called in lists.", initial="demo-17")
    rollouts = forms.IntegerField(
        label="Rollouts", min_value=1, initial=60, help_text="Each ends with one policy update."
    )
    temperature = forms.FloatField(label="Temperature", min_value=0, max_value=2, initial=3.5)
    preset = forms.ChoiceField(label="Preset", choices=[("demo", "demo"), ("games-4b", "games-4b (needs a GPU)")])
    note = forms.CharField(label="Note", widget=forms.Textarea, required=False)
    deterministic = forms.BooleanField(
        label="Deterministic", required=False, initial=True, help_text="Slower; a resumed run repeats bit for bit."
    )


def _form() -> SampleForm:
    form = SampleForm(
        {"name": "demo-17", "rollouts": 60, "temperature": 3.5, "preset": "demo", "note": "", "deterministic": True}
    )
    form.is_valid()
    return form


def _runs() -> list[dict[str, Any]]:
    now = timezone.now()
    rows = [
        ("demo-17", "running", 23, 60, 0.41, 0.63, 0.214, 0.041, 0.38, 2104, now - timedelta(minutes=4)),
        ("demo-16", "completed", 60, 60, 0.47, 0.66, 0.187, 0.032, 0.412, 2088, now - timedelta(hours=3)),
        ("seed-9-cold", "paused", 12, 60, 0.08, 0.31, 0.229, 0.112, 0.291, 1990, now - timedelta(hours=5)),
        ("long-context", "lost", 7, 400, 0.195, 0.204, 0.0093, 0.0214, 0.15, 312, now - timedelta(days=1)),
        ("first-try", "failed", 0, 60, None, None, None, None, None, None, now - timedelta(days=3)),
        ("queued-up", "queued", 0, 400, None, None, None, None, None, None, now - timedelta(seconds=12)),
    ]
    keys = (
        "name",
        "status",
        "rollout",
        "rollouts",
        "unhinted",
        "hinted",
        "regret",
        "regret_se",
        "reward",
        "tokens_per_s",
        "started",
    )
    return [dict(zip(keys, row, strict=True), colour=index) for index, row in enumerate(rows)]


def samples() -> dict[str, Any]:
    """The context of the design page."""
    now = timezone.now()
    won_or_lost = {"+": "won", "-": "lost", "t": "turn_limit", "!": "env_timeout"}
    unhinted = [won_or_lost[mark] for mark in "+--++--+--t+-+!-+"]
    hinted = [won_or_lost[mark] for mark in "++++-+++++-+++++"]
    return {
        "runs": _runs(),
        "states": [
            "running",
            "queued",
            "paused",
            "stopping",
            "stopped",
            "completed",
            "failed",
            "lost",
            "reconnecting",
            "stale",
            "leaky",
        ],
        "endings": ["won", "lost", "turn_limit", "context_full", "env_error"],
        "unhinted_episodes": [
            {"status": status, "url": "#pair", "label": f"play {n}"} for n, status in enumerate(unhinted)
        ],
        "hinted_episodes": [
            {"status": status, "url": "#pair", "label": f"play {n}"} for n, status in enumerate(hinted)
        ],
        "stage_items": [
            {"name": "design", "state": "done", "done": 6, "total": 6},
            {"name": "gates", "state": "done", "done": 6, "total": 6, "note": "1 rejected"},
            {"name": "hints", "state": "done", "done": 5, "total": 5},
            {"name": "play", "state": "active", "done": 61, "total": 96},
            {"name": "learn", "state": "todo"},
            {"name": "sync", "state": "todo"},
        ],
        "tab_items": [
            {"label": "Overview", "url": "#", "active": True},
            {"label": "Charts", "url": "#charts"},
            {"label": "Environments", "url": "#environments", "count": 138},
            {"label": "Episodes", "url": "#episodes", "count": "4.42k"},
            {"label": "Config", "url": "#config"},
            {"label": "Logs", "url": "#logs"},
        ],
        "numbers": [0.41372, 2104.0, 12345678.0, 0.00041, -3.5, 0, 7, None, float("nan"), float("inf")],
        "source": SOURCE,
        "hostile_text": HOSTILE,
        "form": _form(),
        "moments": [
            now,
            now - timedelta(minutes=4),
            now - timedelta(hours=3),
            now - timedelta(days=5),
            now - timedelta(days=90),
            None,
        ],
    }
