"""The data card of a pool: what is in it, how much of each run it covers, and what to know before using it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.environments.models import Environment
from webapp.environments.selectors_signals import capture_ledger, coverage_of
from webapp.pools.manifest import FIELDS
from webapp.runs.models import Run

#: Types of the manifest's fields for loaders that would guess them from the first rows: a column of a thousand nulls is still a number.
_HEAD = (
    "---", "configs:", "- config_name: default", "  data_files: manifest.jsonl", "dataset_info:", "  features:",
    *(line for name, kind in FIELDS.items() for line in (f"  - name: {name}", *(f"    {part}" for part in kind))), "---", "",
)  # fmt: skip
_MARKUP = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>()#+-.!|"})


@dataclass(frozen=True, kw_only=True)
class RunCoverage:
    """What a pool holds of one run, against what the run made."""

    slug: str
    exported: int
    accepted: int  # environments of the run that hold
    rollouts: tuple[int, int] | None  # first and last rollout that wrote an exported environment
    rollouts_done: int
    total_rollouts: int
    captured: float | None  # share of the announced episodes that are stored
    has_gap: bool


def coverage(*, run: Run, exported: Sequence[Environment]) -> RunCoverage:
    """How much of the run is in the pool, and how much of the run was captured at all."""
    rollouts = sorted(one.rollout for one in exported if one.rollout is not None)
    return RunCoverage(
        slug=run.slug or "", exported=len(exported), accepted=Environment.objects.filter(run=run, superseded=False).count(),
        rollouts=(rollouts[0], rollouts[-1]) if rollouts else None, rollouts_done=run.rollouts_done,
        total_rollouts=run.total_rollouts, captured=coverage_of(capture_ledger(run=run)), has_gap=run.gap,
    )  # fmt: skip


def card(
    *,
    name: str,
    licence: str,
    entries: Sequence[dict[str, Any]],
    runs: Sequence[RunCoverage],
    rejected: Counter[str],
    duplicates: int,
) -> str:
    """README.md. Text that people typed is escaped; nothing a model wrote is in it."""
    hints = sum(entry["hint_status"] == "ok" for entry in entries)
    played = sum(entry["n_plays"] > 0 for entry in entries)
    regret = sum(entry["regret_raw"] is not None for entry in entries)
    skills = Counter(entry["skill"] for entry in entries)
    return "\n".join(
        [
            *_HEAD,
            f"# {_plain(name)}", "",
            f"{len(entries)} environments written during SPADE self-play, exported by Spadework. "
            f"Licence: {_plain(licence) if licence else 'not stated'}.", "",
            "| file | what it is |", "|---|---|",
            "| `games/game_*.py` | one program each, as it was played; named by rollout, slot, skill and SHA-256 |",
            "| `manifest.jsonl` | one line per program; every field is always there, null where nothing is known |",
            "| `hints/game_*_hint.txt` | the hint, apart from the program; never part of an observation |",
            "| `validation_summary.json` | what the gates said when this pool was made |",
            "| `checksums.sha256` | check with `sha256sum -c checksums.sha256` |", "",
            "## Coverage", "", "| run | exported | of | rollouts | run got to | episodes captured |", "|---|---|---|---|---|---|",
            *[_row(one) for one in runs], "",
            f"Of {len(entries)} programs {hints} have a hint, {played} were played, {regret} have a measured regret.", "",
            "| skill | programs |", "|---|---|", *[f"| {_plain(skill)} | {count} |" for skill, count in sorted(skills.items())], "",
            "## Validation", "",
            "Every program went through the gates `parse` to `solvable` in a fresh sandbox when this pool was made. "
            f"{sum(rejected.values())} chosen programs are left out"
            + (": " + ", ".join(f"{count} at {stage}" for stage, count in sorted(rejected.items())) if rejected else "") + ". "
            f"{duplicates} were the same program as another and are in it once.", "",
            "## Before you use it", "",
            "- The programs were written by a language model. Run them in a sandbox.",
            "- A program is one class whose name ends in `Env`: `reset(seed)` gives (observation, info), `step(action)` gives "
            "(observation, reward, terminated, truncated, info). It may use the standard library, numpy and math-verify.",
            "- Win rates and regret belong to the policy of that time. The two arms have different numbers of plays: see `n_plays` and "
            "`n_hint_plays`. A missing hint gives no regret, which is null and not 0.",
            "- `regret_used` is the regret term of the designer's reward, null when that environment's window never closed.", "",
        ]
    )  # fmt: skip


def _row(one: RunCoverage) -> str:
    span = f"{one.rollouts[0]} to {one.rollouts[1]}" if one.rollouts else "–"
    captured = "–" if one.captured is None else f"{100 * one.captured:.1f} %"
    hole = " (its event log has a hole)" if one.has_gap else ""
    got_to = f"{one.rollouts_done} of {one.total_rollouts}"
    return f"| {_plain(one.slug)} | {one.exported} | {one.accepted} | {span} | {got_to} | {captured}{hole} |"


def _plain(text: str) -> str:
    """Text without markup."""
    return " ".join(text.split()).translate(_MARKUP)
