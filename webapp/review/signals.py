"""Signs that an environment pays for something else than solving it. They rank what people look at; they judge nothing.

Automatic signals audit reward hacking well afterwards and warn badly before, so nothing is barred by them. Each signal has a strength in
(0, 1] and a weight; the suspicion of an environment is the sum of strength times weight over the signals it shows.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection
from django.db.models import Avg
from django.db.models.functions import Length

from webapp.environments.models import Environment, RegretPoint
from webapp.episodes.models import Episode
from webapp.episodes.selectors import SAME_LINE
from webapp.runs.models import Run

WINS_READ = 16  # of one environment
_ANSWER_CHARS = 3  # shorter answers stand in an observation by chance
_SEEDS_ALIKE = 3
_ENOUGH_WINS = 2
_SHARE = 0.5
_OUTLIER_Z = 3.5  # Iglewicz and Hoaglin's bound for the robust z
_OUTLIER_FULL_Z = 10.0
_ENOUGH_TO_COMPARE = 8
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, kw_only=True)
class Signal:
    """A kind of sign; ``weight`` is what it counts at full strength."""

    key: str
    label: str
    meaning: str
    weight: float


SIGNALS = (
    Signal(key="invalid_win", label="win without a valid action", weight=3.0,
           meaning="the winning reply had no \\boxed{} action, and was rewarded all the same"),
    Signal(key="same_action", label="same winning action for every seed", weight=3.0,
           meaning="at least three seeds were won by one and the same last action"),
    Signal(key="answer_visible", label="answer visible in the observation", weight=3.0,
           meaning="the winning action, three characters or more, stood word for word in what the agent was shown"),
    Signal(key="quick_win", label="win in few turns", weight=2.0,
           meaning="at least half of the wins, two or more, took a single turn"),
    Signal(key="leak", label="leak score", weight=2.0,
           meaning="the hint names the answer, or the gates saw the answer in observations of half the seeds or more"),
    Signal(key="arms_all_won", label="hinted = unhinted = 1", weight=1.0,
           meaning="both arms won every play of offset 0: there is nothing to learn"),
    Signal(key="outlier_length", label="outlier length", weight=1.0,
           meaning="program or episodes are far longer or shorter than the run's others (robust z above 3.5)"),
)  # fmt: skip
BY_KEY = {signal.key: signal for signal in SIGNALS}


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A signal as one environment shows it, with the place to look at."""

    signal: str
    strength: float
    text: str
    episode: int | None = None
    turn: int | None = None  # counted from 0

    def as_json(self) -> dict[str, Any]:
        """What is kept with a queue's item."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _Win:
    episode: int
    seed: int
    turns: int
    action: str
    is_boxed: bool
    seen_in_turn: int | None  # the observation, counted from 0, that held the action's content
    has_text: bool  # False: retention removed it, so nothing can be told from what was said


def suspicion_of(reasons: Iterable[Reason]) -> float:
    """Sum of weight times strength."""
    return sum(BY_KEY[reason.signal].weight * reason.strength for reason in reasons)


def reasons_for(*, run: Run, environments: Sequence[Environment]) -> dict[int, list[Reason]]:
    """Environment → the signals it shows, the heaviest first; environments without any are there with none."""
    found: dict[int, list[Reason]] = {environment.pk: [] for environment in environments}
    for environment_id, wins in _wins_of(environments).items():
        found[environment_id] += signs_of_wins(wins)
    for environment_id, reason in [*_all_won(environments), *_leaks(environments), *_outliers(run, environments)]:
        found[environment_id].append(reason)
    for reasons in found.values():
        reasons.sort(key=lambda reason: -BY_KEY[reason.signal].weight * reason.strength)
    return found


def signs_of_wins(wins: Sequence[_Win]) -> list[Reason]:
    """What the won unhinted episodes of one environment show."""
    signs = _signs_of_texts([win for win in wins if win.has_text])
    quick = [win for win in wins if win.turns == 1]
    if len(quick) >= _ENOUGH_WINS and len(quick) / len(wins) >= _SHARE:
        text = f"{len(quick)} of {len(wins)} wins took one turn"
        signs.append(
            Reason(signal="quick_win", strength=len(quick) / len(wins), text=text, episode=quick[0].episode, turn=0)
        )
    return signs


def _signs_of_texts(wins: Sequence[_Win]) -> list[Reason]:
    signs: list[Reason] = []
    unboxed = [win for win in wins if not win.is_boxed]
    if unboxed:
        first = unboxed[0]
        text = f"{len(unboxed)} of {len(wins)} wins ended with a reply that holds no action"
        strength = max(_SHARE, len(unboxed) / len(wins))
        signs.append(
            Reason(signal="invalid_win", strength=strength, text=text, episode=first.episode, turn=first.turns - 1)
        )
    seeds = {win.seed for win in wins}
    actions = Counter(" ".join(win.action.split()).casefold() for win in wins)
    if len(seeds) >= _SEEDS_ALIKE and len(actions) == 1:
        text = f"{len(seeds)} seeds were all won by {wins[0].action[:80]}"
        signs.append(
            Reason(signal="same_action", strength=1.0, text=text, episode=wins[0].episode, turn=wins[0].turns - 1)
        )
    seen = [win for win in wins if win.seen_in_turn is not None]
    if len(seen) >= _ENOUGH_WINS and len(seen) / len(wins) >= _SHARE:
        first = seen[0]
        text = f"{len(seen)} of {len(wins)} winning actions stood in an observation before"
        signs.append(
            Reason(
                signal="answer_visible",
                strength=len(seen) / len(wins),
                text=text,
                episode=first.episode,
                turn=first.seen_in_turn,
            )
        )
    return signs


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median of some values and their robust standard deviation: 1.4826 times the median absolute deviation."""

    median: float
    sigma: float

    def z(self, value: float) -> float | None:
        """Distance from the median in robust standard deviations; None where those are 0."""
        return (value - self.median) / self.sigma if self.sigma > 0 else None


def spread_of(values: Iterable[float]) -> Spread | None:
    """The spread of the values; None for fewer than are needed to call one an outlier."""
    known = sorted(values)
    if len(known) < _ENOUGH_TO_COMPARE:
        return None
    middle = statistics.median(known)
    deviation = statistics.median(abs(one - middle) for one in known)
    return Spread(median=middle, sigma=deviation * _MAD_TO_SIGMA)


def _wins_of(environments: Sequence[Environment]) -> dict[int, list[_Win]]:
    """The first WINS_READ won unhinted episodes of each, looked at inside the database: transcripts stay there."""
    with connection.cursor() as cursor:
        cursor.execute(
            r"""
            WITH won AS (
                SELECT episode.id, episode.environment_id, episode.seed, episode.turns AS length,
                       row_number() OVER (PARTITION BY episode.environment_id ORDER BY episode.id) AS place
                FROM episodes_episode AS episode
                JOIN environments_environment AS environment ON environment.id = episode.environment_id
                WHERE episode.environment_id = ANY(%(environments)s) AND episode.superseded = environment.superseded
                  AND episode.arm = 'unhinted' AND episode.status = 'won' AND episode.turns > 0
            ), read AS (
                SELECT won.*, transcript.turns AS body, coalesce(transcript.turns->-1->>'action', '') AS action,
                       transcript.removed_at IS NULL AS has_text
                FROM won JOIN episodes_transcript AS transcript ON transcript.episode_id = won.id
                WHERE won.place <= %(most)s
            ), told AS (
                SELECT *, left(action, 7) = '\boxed{' AS boxed,
                       lower(btrim(substr(action, 8, greatest(length(action) - 8, 0)))) AS content
                FROM read
            )
            SELECT id, environment_id, seed, length, has_text, left(action, 300), boxed,
                   CASE WHEN boxed AND length(content) BETWEEN %(least)s AND 300 THEN (
                       SELECT min(numbered.at) - 1
                       FROM jsonb_array_elements(body) WITH ORDINALITY AS numbered(turn, at)
                       WHERE position(content IN lower(turn->>'observation')) > 0
                   ) END
            FROM told ORDER BY environment_id, id
            """,
            {"environments": [one.pk for one in environments], "most": WINS_READ, "least": _ANSWER_CHARS},
        )
        rows = cursor.fetchall()
    wins: dict[int, list[_Win]] = defaultdict(list)
    for episode, environment, seed, turns, has_text, action, is_boxed, seen in rows:
        wins[environment].append(
            _Win(
                episode=episode,
                seed=seed,
                turns=turns,
                action=action,
                is_boxed=is_boxed,
                seen_in_turn=seen,
                has_text=has_text,
            )
        )
    return wins


def _all_won(environments: Sequence[Environment]) -> list[tuple[int, Reason]]:
    points = RegretPoint.objects.filter(
        SAME_LINE, environment__in=environments, unhinted_mean=1, hinted_mean=1, unhinted_n__gte=2, hinted_n__gte=2
    )
    found = []
    for point in points:
        text = f"all {point.unhinted_n} unhinted and {point.hinted_n} hinted plays won"
        found.append((point.environment_id or 0, Reason(signal="arms_all_won", strength=1.0, text=text)))
    return found


def _leaks(environments: Sequence[Environment]) -> list[tuple[int, Reason]]:
    found = []
    for environment in environments:
        shown = environment.measures.get("observation_shows_answer")
        if environment.hint_state == Environment.HintState.LEAKY:
            text = f"the hint leaks: {environment.hint_reason[:120] or 'it names the answer'}"
            found.append((environment.pk, Reason(signal="leak", strength=1.0, text=text)))
        elif isinstance(shown, int | float) and shown >= _SHARE:
            text = f"the gates saw the answer in observations of {shown:.0%} of seeds"
            found.append((environment.pk, Reason(signal="leak", strength=min(1.0, float(shown)), text=text)))
    return found


def _outliers(run: Run, environments: Sequence[Environment]) -> list[tuple[int, Reason]]:
    """The farther out of two lengths: of the program, and of its episodes in tokens."""
    holds = Environment.objects.filter(run=run, superseded=False)
    programs = dict(holds.annotate(length=Length("code")).values_list("pk", "length"))
    plays = dict(
        Episode.objects.filter(run=run, superseded=False, environment__isnull=False)
        .values_list("environment_id")
        .annotate(mean=Avg("total_tokens"))
        .values_list("environment_id", "mean")
    )
    lengths = (
        ("its program has {:.0f} characters, the median is {:.0f}", programs, spread_of(programs.values())),
        ("its episodes have {:.0f} tokens, the median is {:.0f}", plays, spread_of(plays.values())),
    )
    found = []
    for environment in environments:
        worst, words = 0.0, ""
        for sentence, of_all, spread in lengths:
            length = of_all.get(environment.pk)
            score = spread.z(length) if spread is not None and length is not None else None
            if spread is not None and score is not None and abs(score) > worst:
                worst, words = abs(score), sentence.format(length, spread.median)
        if worst > _OUTLIER_Z:
            strength = min(1.0, worst / _OUTLIER_FULL_Z)
            found.append((environment.pk, Reason(signal="outlier_length", strength=strength, text=words)))
    return found
