"""Where an environment came from and what it led to: document and memory parents, attempts, and the prompts that showed it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import Q

from webapp.environments.models import Candidate, DesignerReward, Environment, MemoryRecord
from webapp.runs.models import Run

GENERATIONS = 3  # how far up and down the trees go
CHILDREN_SHOWN = 40


@dataclass(kw_only=True)
class Kin:
    """A node of a tree of memory relatives: ``role`` says how it was shown; ``again`` when it stands elsewhere in the tree."""

    key: str
    role: str  # example, counter-example
    environment: Environment | None
    memory: MemoryRecord | None = None
    kin: list[Kin] = field(default_factory=list)
    again: bool = False
    cut: int = 0  # relatives beyond GENERATIONS


def ancestors_of(*, environment: Environment, generations: int = GENERATIONS) -> list[Kin]:
    """Memory parents, their parents, and so on; one query per generation."""
    tree = [*_parents(environment)]
    _grow_up(run=environment.run, level=tree, seen={environment.key}, left=generations - 1)
    return tree


def _parents(environment: Environment) -> list[Kin]:
    shown = [("example", key) for key in environment.examples]
    shown += [("counter-example", key) for key in environment.counter_examples]
    return [Kin(key=key, role=role, environment=None) for role, key in shown]


def _grow_up(*, run: Run, level: list[Kin], seen: set[str], left: int) -> None:
    found = _by_key(run, [kin.key for kin in level])
    records = {row.environment_key: row for row in _memory(run, [kin.key for kin in level])}
    following: list[Kin] = []
    for kin in level:
        kin.environment = found.get(kin.key)
        kin.memory = records.get(kin.key)
        kin.again = kin.key in seen
        seen.add(kin.key)
        if kin.environment is None or kin.again:
            continue
        parents = _parents(kin.environment)
        if left > 0:
            kin.kin = parents
            following += parents
        else:
            kin.cut = len(parents)
    if following:
        _grow_up(run=run, level=following, seen=seen, left=left - 1)


def descendants_of(*, environment: Environment, generations: int = GENERATIONS) -> list[Kin]:
    """Environments whose prompts showed this one, theirs, and so on; one query per generation."""
    return _grow_down(run=environment.run, keys=[environment.key], seen={environment.key}, left=generations)[
        environment.key
    ]


def _grow_down(*, run: Run, keys: Sequence[str], seen: set[str], left: int) -> dict[str, list[Kin]]:
    """For each key the environments that were shown it. A child of several keys stands in full below the first only."""
    below: dict[str, list[Kin]] = {key: [] for key in keys}
    rows = (
        Environment.objects.filter(_shown_any(keys), run=run, superseded=False)
        .defer("code")
        .order_by("rollout", "slot")
    )
    fresh: list[Kin] = []
    for row in rows:
        for role, shown in (("example", row.examples), ("counter-example", row.counter_examples)):
            for key in below.keys() & set(shown):
                kin = Kin(key=row.key, role=role, environment=row, again=row.key in seen)
                below[key].append(kin)
                if not kin.again:
                    fresh.append(kin)
                seen.add(row.key)
    if fresh and left > 1:
        deeper = _grow_down(run=run, keys=[kin.key for kin in fresh], seen=seen, left=left - 1)
        for kin in fresh:
            kin.kin = deeper[kin.key]
    return below


def rejected_users_of(*, environment: Environment) -> list[Candidate]:
    """Rejected design attempts whose prompt showed this environment."""
    rows = Candidate.objects.filter(
        _shown_any([environment.key]), run_id=environment.run_id, superseded=False, accepted=False
    )
    return list(rows.defer("prompt", "reply", "code", "stages").order_by("id")[:CHILDREN_SHOWN])


def memory_of(*, environment: Environment) -> MemoryRecord | None:
    """The environment's own record in memory, present or removed."""
    rows = MemoryRecord.objects.filter(run_id=environment.run_id, environment_key=environment.key)
    return rows.filter(superseded=environment.superseded).order_by("-attempt").first()


def reward_of(*, environment: Environment) -> DesignerReward | None:
    """What the designer got for it."""
    return environment.designer_rewards.filter(superseded=environment.superseded).order_by("-attempt").first()


def records_shown(*, run: Run, keys: Sequence[str]) -> list[tuple[str, MemoryRecord | None]]:
    """For each key shown in a prompt its memory record; None when there is no trace of it."""
    records = {row.environment_key: row for row in _memory(run, keys)}
    return [(key, records.get(key)) for key in keys]


def _by_key(run: Run, keys: Iterable[str]) -> dict[str, Environment]:
    rows = Environment.objects.filter(run=run, key__in=list(keys), superseded=False)
    return {row.key: row for row in rows.defer("code").select_related("document")}


def _memory(run: Run, keys: Iterable[str]) -> list[MemoryRecord]:
    return list(MemoryRecord.objects.filter(run=run, environment_key__in=list(keys), superseded=False).defer("snippet"))


def _shown_any(keys: Sequence[str]) -> Q:
    """Rows whose prompt showed one of these."""
    return Q(examples__has_any_keys=list(keys)) | Q(counter_examples__has_any_keys=list(keys))
