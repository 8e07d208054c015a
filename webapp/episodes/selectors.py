"""Reading episodes: lists without transcripts, one transcript a page at a time, and the two arms of a pair side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import F, Q
from django.http import Http404
from django.utils.safestring import SafeString

from trainer.events import FAULTS
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import Environment
from webapp.episodes.models import Episode, Transcript
from webapp.runs.models import Run

PAGE_ROWS = 50
TURNS_A_PAGE = 200
PREVIEW_CHARACTERS = 20_000
STATUSES = ("won", "lost", "turn_limit", "truncated_by_env", "length", "context_full", *sorted(FAULTS))
#: An environment that holds counts only what holds; one that was left behind by a resume shows what it had.
SAME_LINE = Q(superseded=F("environment__superseded"))
HINT_MARK = "\n\nHINT: "
ACTION_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class EpisodeFilter:
    """What the list is narrowed to; empty means no narrowing. ``status`` "fault" stands for every fault."""

    arm: str = ""
    status: str = ""
    environment: str = ""
    rollout: int | None = None


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of a transcript: its beginning, and how long it is in all."""

    shown: str
    characters: int
    html: SafeString | None = None  # rendered (rendering.py); None where it is shown raw

    @property
    def is_cut(self) -> bool:
        """Only the beginning is here; the rest is a download."""
        return self.characters > len(self.shown)


@dataclass(frozen=True, kw_only=True)
class TurnView:
    """One turn as shown: the hint is taken out of the first observation so that it can be marked."""

    number: int
    observation: Text
    hint: str
    reply: Text
    action: str | None
    reward: float | None
    terminated: bool
    truncated: bool
    observation_tokens: int
    reply_tokens: int
    logprob_mean: float | None
    hint_html: SafeString | None = None

    @property
    def position(self) -> int:
        """Number people count by, from 1."""
        return self.number + 1

    @property
    def anchor(self) -> str:
        """Id of the turn on its episode's page."""
        return f"t{self.position}"

    @property
    def action_note(self) -> str:
        """What the reply amounted to, where that is not plain from its text."""
        words = []
        if self.action is None:
            words.append("not stepped")
        elif self.action.strip() not in self.reply.shown:
            words.append(f"acted {self.action[:ACTION_CHARACTERS]}")
        words += [
            word
            for word, holds in (
                ("ended the episode", self.terminated),
                ("truncated by the environment", self.truncated),
            )
            if holds
        ]
        return " · ".join(words)


def list_episodes(*, run: Run, chosen: EpisodeFilter, cursor: str = "", size: int = PAGE_ROWS) -> Page[Episode]:
    """Newest first. Raises BadRequest for a damaged cursor."""
    rows = Episode.objects.filter(run=run, superseded=False).select_related("environment").defer("environment__code")
    if chosen.arm:
        rows = rows.filter(arm=chosen.arm)
    if chosen.status == "fault":
        rows = rows.filter(status__in=FAULTS)
    elif chosen.status:
        rows = rows.filter(status=chosen.status)
    if chosen.environment:
        rows = rows.filter(environment_key=chosen.environment)
    if chosen.rollout is not None:
        rows = rows.filter(rollout=chosen.rollout)
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def access_episode(*, run: Run, episode_id: int) -> Episode:
    """The episode with its environment. Raises Http404."""
    try:
        return Episode.objects.select_related("environment").get(run=run, pk=episode_id)
    except Episode.DoesNotExist as error:
        raise Http404("There is no such episode in this run.") from error


def read_turns(*, episode: Episode, start: int = 0, count: int = TURNS_A_PAGE) -> list[TurnView]:
    """Turns ``start`` … of a transcript, cut in the database: a 20 MB transcript does not travel for its first page."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT numbered.at - 1,
                   left(turn->>'observation', %(keep)s), length(turn->>'observation'),
                   left(turn->>'reply', %(keep)s), length(turn->>'reply'),
                   left(turn->>'action', 2000), (turn->>'reward')::float8,
                   (turn->>'terminated')::boolean, (turn->>'truncated')::boolean,
                   (turn->>'observation_tokens')::int, (turn->>'reply_tokens')::int, (turn->>'logprob_mean')::float8
            FROM episodes_transcript, LATERAL jsonb_array_elements(turns) WITH ORDINALITY AS numbered(turn, at)
            WHERE episode_id = %(episode)s AND numbered.at > %(start)s AND numbered.at <= %(end)s
            ORDER BY numbered.at
            """,
            {"keep": PREVIEW_CHARACTERS, "episode": episode.pk, "start": start, "end": start + count},
        )
        rows = cursor.fetchall()
    return [_turn_view(row, is_hinted=episode.arm == Episode.Arm.HINTED) for row in rows]


def _turn_view(row: Sequence[Any], *, is_hinted: bool) -> TurnView:
    (
        number,
        observation,
        observation_length,
        reply,
        reply_length,
        action,
        reward,
        terminated,
        truncated,
        seen,
        said,
        logprob,
    ) = row
    observation, hint = observation or "", ""
    if is_hinted and number == 0 and HINT_MARK in observation:
        observation, _, hint = observation.partition(HINT_MARK)
        observation_length -= len(HINT_MARK) + len(hint)
    return TurnView(
        number=number, observation=Text(shown=observation, characters=observation_length or 0), hint=hint,
        reply=Text(shown=reply or "", characters=reply_length or 0), action=action, reward=reward, terminated=bool(terminated),
        truncated=bool(truncated), observation_tokens=seen or 0, reply_tokens=said or 0, logprob_mean=logprob,
    )  # fmt: skip


def read_text(*, episode: Episode, turn: int, part: str) -> str:
    """The whole observation or reply of one turn. Raises Http404."""
    transcript = _transcript(episode)
    if transcript.removed_at is not None:
        raise Http404(f"The text of this transcript was removed by retention on {transcript.removed_at:%Y-%m-%d}.")
    if part not in ("observation", "reply") or not 0 <= turn < len(transcript.turns):
        raise Http404("There is no such turn.")
    return str(transcript.turns[turn].get(part) or "")


def final_observation(*, episode: Episode) -> Text | None:
    """What the environment said last, None when it said nothing."""
    row = Transcript.objects.filter(episode=episode).values_list("final_observation", flat=True).first()
    return Text(shown=row[:PREVIEW_CHARACTERS], characters=len(row)) if row else None


def whole_transcript(*, episode: Episode) -> Transcript:
    """The transcript as recorded. Raises Http404 when there is none."""
    return _transcript(episode)


def _transcript(episode: Episode) -> Transcript:
    try:
        return Transcript.objects.get(episode=episode)
    except Transcript.DoesNotExist as error:
        raise Http404("This episode has no transcript.") from error


def strip_of(*, environment: Environment, offset: int | None = None) -> dict[str, list[Episode]]:
    """Episodes of both arms, ordered by offset and play; with ``offset`` only those."""
    rows = Episode.objects.filter(SAME_LINE, environment=environment).order_by("offset", "play")
    if offset is not None:
        rows = rows.filter(offset=offset)
    strips: dict[str, list[Episode]] = {"unhinted": [], "hinted": []}
    for episode in rows:
        strips.setdefault(episode.arm, []).append(episode)
    return strips


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two episodes of one environment with the same seed; either may be missing."""

    play: int
    unhinted: Episode | None
    hinted: Episode | None

    @property
    def seed(self) -> int | None:
        """The seed both were reset with."""
        one = self.unhinted or self.hinted
        return one.seed if one else None


def pairs_of(*, environment: Environment) -> list[Pair]:
    """All pairs at offset 0, matched by seed, in the order of plays."""
    strips = strip_of(environment=environment, offset=0)
    hinted = {episode.seed: episode for episode in strips["hinted"]}
    pairs = [Pair(play=one.play, unhinted=one, hinted=hinted.pop(one.seed, None)) for one in strips["unhinted"]]
    pairs += [Pair(play=one.play, unhinted=None, hinted=one) for one in hinted.values()]
    return sorted(pairs, key=lambda pair: pair.play)


@dataclass(frozen=True, kw_only=True)
class AlignedTurn:
    """The same turn of both arms; ``first_difference`` names the part ("observation", "action") where the two part ways."""

    number: int
    unhinted: TurnView | None
    hinted: TurnView | None
    first_difference: str = ""

    @property
    def is_observation_first(self) -> bool:
        """The two part ways in what they saw."""
        return self.first_difference == "observation"

    @property
    def is_action_first(self) -> bool:
        """The two saw the same and did something else."""
        return self.first_difference == "action"


def align(unhinted: Sequence[TurnView], hinted: Sequence[TurnView], *, by_action: bool = False) -> list[AlignedTurn]:
    """Pair turns by number and mark where they first differ. The injected hint itself is no difference.

    ``by_action``: what was done counts, not what was said around it; a person says nothing.
    """
    aligned: list[AlignedTurn] = []
    has_differed = False
    for index in range(max(len(unhinted), len(hinted))):
        left = unhinted[index] if index < len(unhinted) else None
        right = hinted[index] if index < len(hinted) else None
        part = "" if has_differed else _differing_part(left, right, by_action)
        aligned.append(AlignedTurn(number=index, unhinted=left, hinted=right, first_difference=part))
        has_differed = has_differed or bool(part)
    return aligned


def _differing_part(left: TurnView | None, right: TurnView | None, by_action: bool) -> str:
    if left is None or right is None or left.observation.shown.strip() != right.observation.shown.strip():
        return "observation"
    if by_action:
        return "" if _deed(left) == _deed(right) else "action"
    return "action" if left.reply.shown.strip() != right.reply.shown.strip() else ""


def _deed(turn: TurnView) -> str | None:
    """The action without the spaces that do not matter."""
    return " ".join(turn.action.split()) if turn.action is not None else None
