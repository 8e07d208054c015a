"""One line of a pool's manifest per environment: every field always there, its type never changing, None where nothing is known.

The schema is the superset of the released SPADE pools' fields. File names come from numbers, the skill's slug and the code's hash,
never from anything a model wrote.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.db.models import Avg, Count, Q

from webapp.environments.models import DesignerReward, Environment, RegretPoint
from webapp.episodes.models import Episode
from webapp.episodes.selectors import SAME_LINE
from webapp.runs.models import Checkpoint, Run

EXPORTER_VERSION = "spadework-pool-1"
#: hint_state of ours -> hint_status of the schema: a hint that leaks or never came is no hint to use.
_HINT_STATUS = {"ok": "ok", "leaky": "failed", "none": "failed", "": "none"}
_TEXT, _WHOLE, _REAL, _TEXTS = ("dtype: string",), ("dtype: int64",), ("dtype: float64",), ("list: string",)
#: Every field with its type, as the data card says it (the ``features`` of a dataset's card).
FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("env_id", "file_name", "sha256"), _TEXT), **dict.fromkeys(("byte_count", "line_count"), _WHOLE),
    **dict.fromkeys(("skill", "game_type", "difficulty", "source_run"), _TEXT), **dict.fromkeys(("attempt", "rollout_step"), _WHOLE),
    **dict.fromkeys(("generator_model", "checkpoint", "recipe_hash", "corpus_doc_id", "corpus_doc_sha256"), _TEXT),
    "memory_seed_ids": _TEXTS, **dict.fromkeys(("hint_sha256", "hint_status"), _TEXT),
    **dict.fromkeys(("n_plays", "n_hint_plays"), _WHOLE),
    **dict.fromkeys(("win_rate", "mean_reward", "r_hint", "r_no_hint", "regret_raw", "regret_used"), _REAL),
    "validation": ("struct:", "- name: stage", "  dtype: string", "- name: ok", "  dtype: bool", "- name: reason", "  dtype: string"),
    "review": (
        "struct:", "- name: status", "  dtype: string", "- name: flags", "  list: string", "- name: reviewers", "  dtype: int64",
        "- name: agreement", "  dtype: float64",
    ),
    **dict.fromkeys(("licence", "exporter_version"), _TEXT),
}  # fmt: skip
_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What was measured on one environment; None where nothing was."""

    n_plays: int = 0
    n_hint_plays: int = 0
    win_rate: float | None = None
    mean_reward: float | None = None


def measures_of(environments: Sequence[Environment]) -> dict[int, Measures]:
    """By environment id; episodes with a fault have no reward and are not counted."""
    unhinted, hinted = Q(arm="unhinted", reward__isnull=False), Q(arm="hinted", reward__isnull=False)
    rows = (
        Episode.objects.filter(SAME_LINE, environment__in=list(environments))
        .values("environment_id")
        .annotate(
            plays=Count("id", filter=unhinted), hint_plays=Count("id", filter=hinted), mean=Avg("reward", filter=unhinted),
            won=Count("id", filter=unhinted & Q(reward__gt=0)),
        )
    )  # fmt: skip
    return {
        row["environment_id"]: Measures(
            n_plays=row["plays"], n_hint_plays=row["hint_plays"], mean_reward=row["mean"],
            win_rate=row["won"] / row["plays"] if row["plays"] else None,
        )
        for row in rows
    }  # fmt: skip


def file_stem(environment: Environment, digest: str) -> str:
    """ "game_<rollout>_<slot>_<skill>_<hash>": two environments with the same stem have the same program."""
    skill = _SLUG.sub("_", environment.skill.lower()).strip("_")[:40] or "unknown"
    return f"game_{environment.rollout or 0:05d}_{environment.slot:03d}_{skill}_{digest[:12]}"


def flags_of(environments: Sequence[Environment]) -> dict[int, list[tuple[str, int | None]]]:
    """By environment id: kind and author of the flags that stand. Without the review app nobody flagged."""
    flags: dict[int, list[tuple[str, int | None]]] = defaultdict(list)
    if apps.is_installed("webapp.review"):
        rows = apps.get_model("review", "Flag").objects.filter(environment__in=list(environments), withdrawn_at=None)
        for environment_id, kind, by in rows.values_list("environment_id", "kind__key", "by_id"):
            flags[environment_id].append((kind, by))
    return flags


def review_of(environment: Environment, flags: Sequence[tuple[str, int | None]]) -> dict[str, Any]:
    """State, standing kinds of flags and how many people flagged."""
    return {
        "status": environment.state, "flags": sorted({kind for kind, _ in flags}), "reviewers": len({by for _, by in flags}),
        "agreement": None,
    }  # fmt: skip


class ManifestWriter:
    """Lines for the environments of one run."""

    def __init__(self, run: Run, environments: Sequence[Environment], *, licence: str) -> None:
        self.run = run
        self.licence = licence
        self.recipe = sha256(json.dumps(run.config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        self.measures = measures_of(environments)
        self.flags = flags_of(environments)
        regret = RegretPoint.objects.filter(SAME_LINE, environment__in=list(environments))
        rewards = DesignerReward.objects.filter(SAME_LINE, environment__in=list(environments))
        self.regret = {point.environment_id: point for point in regret}
        self.rewards = {reward.environment_id: reward for reward in rewards}
        checkpoints = Checkpoint.objects.filter(run=run).order_by("next_rollout", "pk")
        self.checkpoints = list(checkpoints.values_list("attempt", "next_rollout", "name", "superseded"))

    def line(self, environment: Environment) -> dict[str, Any]:
        """The manifest's entry of an environment that the gates have just accepted again."""
        code = environment.code.encode()
        digest = sha256(code).hexdigest()
        measured = self.measures.get(environment.pk, Measures())
        point, reward = self.regret.get(environment.pk), self.rewards.get(environment.pk)
        document, hint = environment.document, environment.hint_text if environment.hint_state == "ok" else None
        return {
            "env_id": f"{self.run.slug}/{environment.key}/{environment.attempt}",
            "file_name": f"{file_stem(environment, digest)}.py",
            "sha256": digest, "byte_count": len(code), "line_count": environment.code.count("\n") + (not environment.code.endswith("\n")),
            "skill": environment.skill, "game_type": self.run.config.get("environment_kind", "game"), "difficulty": None,
            "source_run": self.run.slug or "", "attempt": environment.attempt, "rollout_step": environment.rollout,
            "generator_model": str(self.run.config.get("model", {}).get("path", "")), "checkpoint": self._checkpoint(environment),
            "recipe_hash": self.recipe, "corpus_doc_id": environment.document_key,
            "corpus_doc_sha256": sha256(document.text.encode()).hexdigest() if document else None,
            "memory_seed_ids": [*environment.examples, *environment.counter_examples],
            "hint_sha256": sha256(hint.encode()).hexdigest() if hint is not None else None,
            "hint_status": _HINT_STATUS.get(environment.hint_state, "none"),
            "n_plays": measured.n_plays, "n_hint_plays": measured.n_hint_plays, "win_rate": _real(measured.win_rate),
            "mean_reward": _real(measured.mean_reward), "r_hint": _real(point.hinted_mean if point else None),
            "r_no_hint": _real(point.unhinted_mean if point else None), "regret_raw": _real(point.regret if point else None),
            "regret_used": _real(reward.regret_term if reward else None),
            "validation": {"stage": "solvable", "ok": True, "reason": ""},
            "review": review_of(environment, self.flags.get(environment.pk, ())),
            "licence": self.licence or None, "exporter_version": EXPORTER_VERSION,
        }  # fmt: skip

    def _checkpoint(self, environment: Environment) -> str | None:
        """The newest checkpoint saved before the environment was written: the policy that wrote it, or one just older.

        One that a resume left behind is of another policy, unless the environment is of the very attempt that saved it.
        """
        rollout = environment.rollout or 0
        fitting = [
            name
            for attempt, following, name, superseded in self.checkpoints
            if attempt <= environment.attempt and following <= rollout
            if not superseded or attempt == environment.attempt
        ]
        return fitting[-1] if fitting else None


def as_line(entry: dict[str, Any]) -> bytes:
    """An entry as one line of JSON."""
    return json.dumps(entry, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _real(value: float | None) -> float | None:
    """A float even where the number is whole: readers guess a column's type from its first rows."""
    return None if value is None else float(value)
