"""Reading people's plays, gate runs and variants of environments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import OuterRef, Subquery
from django.http import Http404
from django.utils import timezone

from webapp.accounts.models import User
from webapp.environments.jobs import SESSION_EXPIRES_S
from webapp.environments.models import Environment, GateRun, PlaySession, Variant
from webapp.episodes.models import Episode
from webapp.episodes.selectors import SAME_LINE
from webapp.runs.models import Run

LISTED = 20
SEEDS_LISTED = 64
COMPARED = 1_000_000  # a program of 1000 lines with a hundred changes takes a quarter of it


def access_session(*, run: Run, session_id: int) -> PlaySession:
    """The play with its environment and variant; an open one that nobody touched for too long reads as expired. Raises Http404."""
    rows = PlaySession.objects.select_related("environment", "variant", "by")
    session = rows.filter(environment__run=run, pk=session_id).first()
    if session is None:
        raise Http404("There is no such play in this run.")
    oldest = timezone.now() - timedelta(seconds=SESSION_EXPIRES_S)
    if session.state == PlaySession.State.OPEN and session.touched_at < oldest:
        session.state = PlaySession.State.EXPIRED
    return session


def sessions_of(*, environment: Environment, by: User) -> list[PlaySession]:
    """A person's plays of the environment, newest first."""
    rows = PlaySession.objects.filter(environment=environment, by=by).select_related("variant")
    return list(rows.order_by("-id")[:LISTED])


def agent_plays(*, environment: Environment, seed: int) -> list[Episode]:
    """What the agent did with this seed: unhinted before hinted, by offset and play."""
    rows = Episode.objects.filter(SAME_LINE, environment=environment, seed=seed)
    return list(rows.order_by("-arm", "offset", "play")[:LISTED])


@dataclass(frozen=True, kw_only=True)
class PlayedSeed:
    """A seed the agent was given, and how it went."""

    seed: int
    episodes: list[Episode]


def played_seeds(*, environment: Environment) -> list[PlayedSeed]:
    """Seeds of the agent's episodes in the order of offsets and plays."""
    seeds: dict[int, list[Episode]] = {}
    for episode in Episode.objects.filter(SAME_LINE, environment=environment).order_by("offset", "play", "-arm"):
        seeds.setdefault(episode.seed, []).append(episode)
    return [PlayedSeed(seed=seed, episodes=episodes) for seed, episodes in list(seeds.items())[:SEEDS_LISTED]]


def gate_runs_of(*, environment: Environment, variant: Variant | None = None) -> list[GateRun]:
    """Gate runs that people asked for, newest first."""
    rows = GateRun.objects.filter(environment=environment, variant=variant).select_related("by")
    return list(rows.order_by("-id")[:LISTED])


def variants_of(*, environment: Environment) -> list[Variant]:
    """Edited variants, newest first, each with ``accepted`` and ``failed_stage`` of its newest finished gate run (None: none yet)."""
    newest = GateRun.objects.filter(variant=OuterRef("pk"), state=GateRun.State.DONE).order_by("-id")
    rows = environment.variants.select_related("by", "parent").annotate(
        accepted=Subquery(newest.values("accepted")[:1]), failed_stage=Subquery(newest.values("failed_stage")[:1])
    )
    return list(rows.order_by("-number"))


def access_variant(*, environment: Environment, number: int) -> Variant:
    """The variant of that number. Raises Http404."""
    variant = environment.variants.select_related("parent", "by").filter(number=number).first()
    if variant is None:
        raise Http404(f"There is no variant {number} of {environment.key}.")
    return variant


@dataclass(frozen=True, kw_only=True)
class DiffLine:
    """One line of a difference: ``kind`` is same, added, removed or gap; numbers count from 1 in either text."""

    kind: str
    old: int | None
    new: int | None
    text: str


class _Bounded(difflib.SequenceMatcher[str]):
    """Compares as difflib does until COMPARED pairs of lines were looked at (it is cubic in the worst case: 20 s for 2000 lines).

    After that a stretch that would take more than what is left is compared from its head and from its tail alone, and what is
    between counts as replaced.
    """

    a: Sequence[str]
    b: Sequence[str]
    b2j: dict[str, list[int]]
    left = COMPARED

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """The longest equal stretch of both ranges, or one at an end of both."""
        ahi, bhi = len(self.a) if ahi is None else ahi, len(self.b) if bhi is None else bhi
        work = sum(1 + len(self.b2j.get(self.a[i], ())) for i in range(alo, ahi))
        if work <= self.left:
            self.left -= work
            return super().find_longest_match(alo, ahi, blo, bhi)
        most, head, tail = min(ahi - alo, bhi - blo), 0, 0
        while head < most and self.a[alo + head] == self.b[blo + head]:
            head += 1
        if head:
            return difflib.Match(alo, blo, head)
        while tail < most and self.a[ahi - tail - 1] == self.b[bhi - tail - 1]:
            tail += 1
        return difflib.Match(ahi - tail, bhi - tail, tail)


def diff_lines(*, old: str, new: str, context: int = 3) -> list[DiffLine]:
    """What changed between two programs, with ``context`` unchanged lines around each change; [] when they are the same."""
    before, after = old.splitlines(), new.splitlines()
    lines: list[DiffLine] = []
    matcher = _Bounded(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        if lines or group[0][1] > 0:
            lines.append(DiffLine(kind="gap", old=None, new=None, text=""))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [_line("same", i + 1, j1 + i - i1 + 1, before[i]) for i in range(i1, i2)]
                continue
            lines += [_line("removed", i + 1, None, before[i]) for i in range(i1, i2)]
            lines += [_line("added", None, j + 1, after[j]) for j in range(j1, j2)]
    return lines


def _line(kind: str, old: int | None, new: int | None, text: str) -> DiffLine:
    return DiffLine(kind=kind, old=old, new=new, text=text)


def changed_counts(lines: Sequence[DiffLine]) -> tuple[int, int]:
    """Lines added and removed."""
    return sum(line.kind == "added" for line in lines), sum(line.kind == "removed" for line in lines)
