"""The two evaluation sets, fixed in advance and stored beside this file: `probe` and `heldout`.

probe     programs as the built-in model's families draw them, at all levels: what the agent meets in a run
heldout   harder knobs than any family draws, and families nobody ever trained on

Both were drawn once from a seed, with themes of corpus documents the model was not taught on. `python -m trainer experiments sets`
draws them again and passes every program through the gates; it is not part of a comparison, which only reads the stored files.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox import Sandbox
from trainer.errors import InfrastructureError
from trainer.experiments.programs import UNSEEN, harder
from trainer.fixed_pool import FrozenEnvironment, read_environments
from trainer.prompts.compact import theme_numbers, theme_words
from trainer.provenance import settings_fingerprint
from trainer.starter.data import documents
from trainer.starter.families import FAMILIES
from trainer.starter.families.program import LEVELS, Theme

SetName = Literal["probe", "heldout"]
SET_NAMES: tuple[SetName, ...] = ("probe", "heldout")
DIRECTORY = Path(__file__).parent / "sets"
MAX_TURNS = 10
_SEED = 20261130
_PROBE_EACH, _HARDER_EACH, _UNSEEN_EACH = 4, 3, 6
_TRIES = 20


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Programs that are played to compare models; `fingerprint` changes when a program does."""

    name: SetName
    environments: tuple[FrozenEnvironment, ...]

    @property
    def fingerprint(self) -> str:
        return settings_fingerprint({e.id: [e.skill, e.code] for e in self.environments})


def load_set(name: SetName) -> EvaluationSet:
    """A stored set."""
    return EvaluationSet(name, tuple(read_environments(DIRECTORY / f"{name}.jsonl", name)))


def family_of(identifier: str) -> str:
    """Family in the id of an environment of a set: the part before the first "-"."""
    return identifier.partition("-")[0]


def draw_set(name: SetName, sandbox: Sandbox) -> list[dict[str, str]]:
    """The lines of a set. Programs that do not pass the gates are drawn again; `InfrastructureError` when none of 20 passes."""
    lines: list[dict[str, str]] = []
    for identifier, skill, candidates in _slots(name):
        for code in candidates:
            if sandbox.examine(code).accepted:
                lines.append({"id": identifier, "skill": skill, "code": code})
                break
        else:
            raise InfrastructureError(f"none of {_TRIES} programs for {identifier} passes the gates")
    return lines


def write_set(name: SetName, lines: Sequence[Mapping[str, str]]) -> Path:
    """Store a set; returns its file."""
    path = DIRECTORY / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    return path


def _slots(name: SetName) -> Iterator[tuple[str, str, Iterator[str]]]:
    """Id, skill and candidate programs of every place in a set."""
    each = _PROBE_EACH if name == "probe" else _HARDER_EACH
    for family in FAMILIES:
        for number in range(each):
            skill = family.skills[number % len(family.skills)]
            yield f"{family.name}-{number}", skill, _known(name, family.name, number)
    if name == "heldout":
        for unseen in UNSEEN:
            for number in range(_UNSEEN_EACH):
                identifier = f"{unseen.name}-{number}"
                yield (
                    identifier,
                    unseen.skill,
                    (unseen.draw(rng, theme) for rng, theme in _draws(f"{name}/{identifier}")),
                )


def _known(name: SetName, family_name: str, number: int) -> Iterator[str]:
    family = next(f for f in FAMILIES if f.name == family_name)
    for rng, theme in _draws(f"{name}/{family_name}-{number}"):
        level = LEVELS[number % len(LEVELS)] if name == "probe" else "hard"
        source = family.draw(rng, theme=theme, level=level, max_turns=MAX_TURNS).source
        yield source if name == "probe" else harder(family_name, source, rng)


def _draws(label: str) -> Iterator[tuple[random.Random, Theme]]:
    usable = [document for document in documents(held_out=True) if len(theme_words(document)) >= 2]
    for attempt in range(_TRIES):
        rng = random.Random(f"{_SEED}/{label}/{attempt}")  # noqa: S311 - a seeded stream, not a secret
        document = rng.choice(usable)
        thing, place = rng.sample(theme_words(document), 2)
        yield rng, Theme(thing, place, tuple(int(number) for number in theme_numbers(document)))
