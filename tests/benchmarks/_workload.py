"""Rows for page benchmarks: many small runs, and one as large as the paper's. Written by COPY, the same every time.

The large run: 400 rollouts, a new set of 24 environments every 4th, 16 plays of each arm (hinted ones at regenerations):
2,400 environments, 192,000 episodes with transcripts, 200 metrics, and every event that would have been stored with them.
What people and workers leave around runs is written by ``_workload_around.py``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db import connection
from django.db.models import Model
from psycopg import sql

from tests.pages.synthetic import CODE, NAMES, STAGES, synthetic_config
from trainer.metrics import METRICS
from webapp.accounts.models import User
from webapp.environments.models import Candidate, CorpusDocument, DesignerReward, Environment, MemoryRecord, RegretPoint
from webapp.episodes.models import Episode, Transcript
from webapp.runs.models import Checkpoint, Event, MetricPoint, Run
from webapp.runs.selectors_list import LIST_METRICS

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
SKILLS = tuple(f"Skill {letter}" for letter in "ABCDEFGHIJKL")
PRESETS = ("demo", "paper-4b", "paper-8b", "tiny")
TAGS = ("cpu", "paper", "ablation", "sweep", "keep")
ROLLOUT_S = 420


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is written."""

    runs: int = 2_000
    rollouts: int = 400
    environments: int = 24  # of a set
    plays: int = 16  # of each arm
    regenerate_every: int = 4
    metrics: int = 200
    small_rollouts: int = 40  # of each of the other runs
    turns: int = 10
    long_turns: int = 25  # of the newest set, whose transcripts are opened
    flags: int = 4_000
    alerts: int = 6_000
    audit_entries: int = 50_000
    pools: int = 60
    corpora: int = 60
    deliveries: int = 4_000  # of each of a few webhooks
    queues: int = 6  # of review, all of the large run; the first holds every environment

    @classmethod
    def small(cls) -> Size:
        """Enough to see that everything works."""
        return cls(
            runs=30, rollouts=16, environments=6, plays=4, metrics=40, small_rollouts=6, flags=60, alerts=60, audit_entries=100, pools=3,
            corpora=3, deliveries=20, queues=3,
        )  # fmt: skip

    @property
    def sets(self) -> int:
        """Regenerations."""
        return -(-self.rollouts // self.regenerate_every)

    @property
    def episodes(self) -> int:
        """Of the large run."""
        return self.environments * self.plays * (self.rollouts + self.sets)


def write(size: Size) -> Run:
    """Fill an empty, migrated database; the large run. Tables are analysed afterwards."""
    owners = [User.objects.create_user(name) for name in ("ana", "bo", "chen", "dee")]
    copy_rows(Run, (_run(index, size, owners) for index in range(size.runs)))
    runs = list(Run.objects.order_by("id").values_list("id", flat=True))
    large = runs[-1]
    copy_rows(MetricPoint, (point for run in runs[:-1] for point in _small_metrics(run, size)))
    _large(large, size)
    restart_sequences(CorpusDocument, Candidate, Environment, Episode)
    return Run.objects.get(pk=large)


def copy_rows(model: type[Model], rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows given as column → value; what a row does not say is as a new object of the model has it."""
    fields = [field for field in model._meta.concrete_fields if field.column]
    blank = {field.column: field.get_db_prep_save(field.get_default(), connection) for field in fields}
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    columns = [name for name in blank if name in first or name != "id"]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(model._meta.db_table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in _with_first(first, rows):
            copy.write_row([row.get(name, blank[name]) for name in columns])


def _with_first(first: Mapping[str, Any], rest: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    yield first
    yield from rest


def restart_sequences(*models: type[Model]) -> None:
    """Rows were copied with ids of our own; new ones go on behind them. And the planner learns what there is."""
    with connection.cursor() as cursor:
        for model in models:
            table = model._meta.db_table
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
        cursor.execute("ANALYZE")


def _run(index: int, size: Size, owners: list[User]) -> dict[str, Any]:
    generator = random.Random(index)
    is_large = index == size.runs - 1
    rollouts = size.rollouts if is_large else size.small_rollouts
    every = size.regenerate_every if is_large else 2
    config = synthetic_config(rollouts=rollouts, environments=size.environments, plays=size.plays).model_dump(
        mode="json"
    )
    config["schedule"]["regenerate_every"] = every
    config["seed"] = index
    at = START + timedelta(hours=index)
    status = "completed" if is_large else generator.choice(("completed", "failed", "stopped", "lost", "draft"))
    return {
        "name": "paper-sized" if is_large else f"{generator.choice(NAMES)} {index}", "slug": f"run-{index}", "status": status,
        "owner_id": owners[index % len(owners)].pk, "config": json.dumps(config), "preset": PRESETS[index % len(PRESETS)],
        "seed": index, "tags": json.dumps(generator.sample(TAGS, index % 3)), "notes": "a note about it " * (index % 5),
        "created_at": at, "started_at": at, "attempt": 1, "rollout": rollouts - 1, "rollouts_done": rollouts,
        "total_rollouts": rollouts, "phase": json.dumps({"rollout": rollouts - 1, "regeneration": False, "phases": {}}),
        "latest": "{}", "last_cursor": _events(size) if is_large else 0, "last_event_at": at, "directory": f"/nowhere/run-{index}",
    }  # fmt: skip


def _small_metrics(run: int, size: Size) -> Iterator[dict[str, Any]]:
    generator = random.Random(run)
    for name in LIST_METRICS.values():
        for rollout in range(size.small_rollouts):
            value = None if name.endswith("hinted") and rollout % 2 else generator.random()
            yield {"run_id": run, "attempt": 1, "rollout": rollout, "name": name, "value": value}


def _events(size: Size) -> int:
    return size.episodes + 8 * size.rollouts


def metric_names(size: Size) -> list[str]:
    """Those of the trainer first, then invented ones."""
    names = list(METRICS)[: size.metrics]
    return names + [f"skill/{index:03d}/regret" for index in range(size.metrics - len(names))]


def _large(run: int, size: Size) -> None:
    owner = {"run_id": run, "attempt": 1, "superseded": False}
    generator = random.Random(run)
    copy_rows(
        MetricPoint,
        (
            {**owner, "rollout": rollout, "name": name, "value": generator.random()}
            for name in metric_names(size)
            for rollout in range(size.rollouts)
        ),
    )  # fmt: skip
    slots = [(of_set, slot) for of_set in range(size.sets) for slot in range(size.environments)]
    copy_rows(CorpusDocument, map(partial(_document, owner, size), range(len(slots))))
    for model, make in (
        (Candidate, _candidate), (Environment, _environment), (RegretPoint, _regret), (DesignerReward, _reward), (MemoryRecord, _memory),
    ):  # fmt: skip
        copy_rows(model, (make(owner, size, number, *slot) for number, slot in enumerate(slots)))
    copy_rows(
        Candidate, (_rejected(owner, size, number, *slot) for number, slot in enumerate(slots) if _tries(number) > 1)
    )
    copy_rows(Episode, _episodes(owner, size))
    copy_rows(Transcript, _transcripts(size))
    copy_rows(Event, _event_rows(owner, size))
    copy_rows(
        Checkpoint,
        ({**owner, "rollout": rollout, "name": f"{rollout:06d}", "next_rollout": rollout + 1, "bytes": 8_000_000_000, "elapsed_s": 40.0,
          "at": _at(rollout)} for rollout in range(size.rollouts)),
    )  # fmt: skip


def _at(rollout: int, seconds: float = 0.0) -> datetime:
    return START + timedelta(seconds=rollout * ROLLOUT_S + seconds)


def _key(size: Size, of_set: int, slot: int) -> str:
    return f"r{of_set * size.regenerate_every:04d}-s{slot:02d}"


def _document(owner: dict[str, Any], size: Size, number: int) -> dict[str, Any]:
    rollout = number // size.environments * size.regenerate_every
    text = f"Document {number}. " + "It tells of tides, locks and the weights of things. " * 30
    return {**owner, "id": number + 1, "rollout": rollout, "key": f"doc-{number:05d}", "title": f"Document {number}", "text": text,
            "words": 300}  # fmt: skip


def _common(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    return {**owner, "rollout": of_set * size.regenerate_every, "skill": SKILLS[number % len(SKILLS)]}


def _tries(number: int) -> int:
    """Design attempts of a slot until one was accepted."""
    return 1 + number % 2


def _candidate(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    key = _key(size, of_set, slot)
    code = CODE.format(title="Probe", document=number, name=NAMES[number % len(NAMES)], size=5 + number % 4)
    return {
        **_common(owner, size, number, of_set, slot), "id": number + 1, "key": f"{key}-a{_tries(number)}",
        "environment_key": key, "slot": slot, "design_attempt": _tries(number),
        "document_id": number + 1, "document_key": f"doc-{number:05d}", "prompt": "Write an environment. " * 250,
        "reply": f"```python\n{code}\n```", "code": code, "class_name": f"{NAMES[number % len(NAMES)]}Env", "prompt_tokens": 1500,
        "reply_tokens": 900, "finish_reason": "stop", "accepted": True,
    }  # fmt: skip


def _rejected(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    return {
        **_candidate(owner, size, number, of_set, slot), "id": size.sets * size.environments + number + 1,
        "key": f"{_key(size, of_set, slot)}-a1", "design_attempt": 1, "accepted": False, "failed_stage": STAGES[number % len(STAGES)],
        "reason": "the same answer for every seed",
    }  # fmt: skip


def _environment(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    key = _key(size, of_set, slot)
    code = CODE.format(title="Probe", document=number, name=NAMES[number % len(NAMES)], size=5 + number % 4)
    earlier = [_key(size, max(0, of_set - 1 - step), (slot + step) % size.environments) for step in range(3)]
    return {
        **_common(owner, size, number, of_set, slot), "id": number + 1, "key": key, "slot": slot,
        "class_name": f"{NAMES[number % len(NAMES)]}Env", "code": code, "code_digest": f"{number:064x}", "candidate_id": number + 1,
        "candidate_key": f"{key}-a{_tries(number)}", "document_id": number + 1, "document_key": f"doc-{number:05d}",
        "examples": json.dumps(earlier),
        "added_at": _at(of_set * size.regenerate_every), "hint_state": ("ok", "ok", "ok", "leaky", "none")[number % 5],
        "hint_text": "Each answer is the distance in rows plus columns.", "hint_tries": 1,
        "state": "retired" if of_set < size.sets - 1 else "active",
    }  # fmt: skip


def _regret(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    generator = random.Random(number)
    return {
        **_common(owner, size, number, of_set, slot), "environment_id": number + 1, "environment_key": _key(size, of_set, slot),
        "state": "ok", "regret": generator.uniform(-0.1, 0.6), "standard_error": 0.1, "unhinted_mean": generator.random(),
        "hinted_mean": generator.random(), "unhinted_n": size.plays, "hinted_n": size.plays, "success_share": generator.random(),
    }  # fmt: skip


def _reward(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    return {
        **_common(owner, size, number, of_set, slot), "environment_id": number + 1, "environment_key": _key(size, of_set, slot),
        "variant": "blend", "win_rate": 0.5, "regret": 0.2, "anchor": 0.9, "regret_term": 1.0, "raw": 0.94, "skill_mean": 0.4,
        "weight": 8.0, "reward": 4.3, "faulty": number % 97 == 0,
    }  # fmt: skip


def _memory(owner: dict[str, Any], size: Size, number: int, of_set: int, slot: int) -> dict[str, Any]:
    gone = of_set < size.sets - 9  # the memory keeps 200 records
    return {
        **_common(owner, size, number, of_set, slot), "environment_id": number + 1, "environment_key": _key(size, of_set, slot),
        "class_name": f"{NAMES[number % len(NAMES)]}Env", "snippet": "class …" * 200, "success_share": 0.5, "regret": 0.2,
        "tags": json.dumps(["band"]), "removed_rollout": (of_set + 9) * size.regenerate_every if gone else None,
        "removed_attempt": 1 if gone else None, "removed_reason": "oldest" if gone else "",
    }  # fmt: skip


def _plays(size: Size) -> Iterator[tuple[int, int, int, int, str, int]]:
    """Every episode in the order of play: its number, rollout, set, slot, arm, play."""
    number = 0
    for rollout in range(size.rollouts):
        of_set, offset = divmod(rollout, size.regenerate_every)
        arms = ("unhinted", "hinted") if offset == 0 else ("unhinted",)
        for play in range(size.plays):
            for slot in range(size.environments):
                for arm in arms:
                    number += 1
                    yield number, rollout, of_set, slot, arm, play


def _episodes(owner: dict[str, Any], size: Size) -> Iterator[dict[str, Any]]:
    generator = random.Random(1)
    for number, rollout, of_set, slot, arm, play in _plays(size):
        key, offset = _key(size, of_set, slot), rollout % size.regenerate_every
        draw = generator.random()
        status = "env_timeout" if draw > 0.998 else "won" if draw < 0.5 else "turn_limit" if draw > 0.95 else "lost"
        yield {
            **owner, "id": number, "rollout": rollout, "environment_id": of_set * size.environments + slot + 1,
            "environment_key": key, "key": f"{key}/o{offset}/{arm[0]}/{play:02d}", "arm": arm, "offset": offset, "play": play,
            "seed": 1_000 * slot + play, "status": status, "reward": None if status == "env_timeout" else float(status == "won"),
            "turns": size.turns, "prompt_tokens": 96, "total_tokens": 900, "trained_tokens": 400, "elapsed_s": 1.5,
            "at": _at(rollout, 60 + number % 240),
        }  # fmt: skip


def _transcripts(size: Size) -> Iterator[dict[str, Any]]:
    short = [_turns(size.turns, seed) for seed in range(40)]
    long = [_turns(size.long_turns, seed) for seed in range(40)]
    for number, _, of_set, _, _, _ in _plays(size):
        kept = long if of_set == size.sets - 1 else short
        yield {"episode_id": number, "turns": kept[number % 40], "final_observation": "Found."}


def _turns(count: int, seed: int) -> str:
    generator = random.Random(seed)
    turns = []
    for index in range(count):
        action = f"\\boxed{{probe {index} 2}}"
        turns.append({
            "observation": f"Distance {generator.randrange(9)}. " + "The grid has changed since. " * 4, "action": action,
            "reply": "Let me think about what the distances say. " * 6 + action, "reward": 0.0, "terminated": index + 1 == count,
            "truncated": False, "observation_tokens": 40, "reply_tokens": 60, "logprob_mean": -0.4, "info": {},
        })  # fmt: skip
    return json.dumps(turns)


def _event_rows(owner: dict[str, Any], size: Size) -> Iterator[dict[str, Any]]:
    cursor = 0
    names = metric_names(size)
    warning = json.dumps({"message": "one reply had no end", "where": "play"})
    said = dict.fromkeys(("phase", "checkpoint", "warning", "rollout_finished"), warning)
    said["metrics"] = json.dumps({"values": dict.fromkeys(names, 0.5)})
    episode = json.dumps(
        {
            "episode": "r0000-s00/o0/u/00",
            "environment": "r0000-s00",
            "arm": "unhinted",
            "status": "won",
            "reward": 1.0,
            "id": 1,
        }
    )
    rollout_before = -1
    kinds = ("rollout_started", "phase", "phase", "phase", "metrics", "checkpoint", "warning", "rollout_finished")
    for _, rollout, _, _, _, _ in _plays(size):
        if rollout != rollout_before:
            rollout_before = rollout
            for kind in kinds:
                cursor += 1
                yield _event(owner, cursor, rollout, kind, said.get(kind) or _announcement(size, rollout))
        cursor += 1
        yield _event(owner, cursor, rollout, "episode", episode)


def _announcement(size: Size, rollout: int) -> str:
    """Payload of a ``rollout_started``: what the ledger expects."""
    fresh = rollout % size.regenerate_every == 0
    plays = size.environments * size.plays
    return json.dumps({"regeneration": fresh, "environments": size.environments, "expected_unhinted": plays,
                       "expected_hinted": plays if fresh else 0})  # fmt: skip


def _event(owner: dict[str, Any], cursor: int, rollout: int, kind: str, payload: str) -> dict[str, Any]:
    return {"run_id": owner["run_id"], "cursor": cursor, "attempt": 1, "seq": cursor, "rollout": rollout, "kind": kind, "at": _at(rollout),
            "payload": payload}  # fmt: skip
