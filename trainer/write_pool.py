"""Writing a fixed pool with an untrained policy: the designer's rounds of the loop without play, before any training.

The same prompts, gates, tries and seeds as a run of these settings, set by set in the skills' rotation; the memory stays empty because
nothing is played. A set reaches the file as a whole, so an interrupted command goes on with the set it was in and writes the same file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint import Checkpoints
from trainer.config import RunConfig
from trainer.control import Control, StopRequest
from trainer.corpus import load_corpus
from trainer.designer import design_environments
from trainer.errors import UserError
from trainer.eventlog import EventLog, disk_error
from trainer.hints import write_hints
from trainer.meter import Meter
from trainer.policy import Policy
from trainer.prompts.sets import prompt_set
from trainer.provenance import model_fingerprint, settings_fingerprint
from trainer.run import OpenEngines, open_pool
from trainer.rundir import RunDirectory
from trainer.session import Session
from trainer.state import Environment, TrainingState

# What decides which programs are written; the rest (learning rate, rewards …) may differ without making the pool another one.
_SETTINGS = ("seed", "prompts", "model", "schedule", "designer", "hint", "agent", "corpus", "gates")
_NOT_OF_THE_SCHEDULE = {"rollouts", "plays", "designer_delay"}
_OWN_LINE = re.compile(rb'\{"id": "r\d{4,}-s\d{2,}", "skill": "')


@dataclass(frozen=True, slots=True)
class Written:
    """What the file holds now: environments in all, and how many this call added."""

    environments: int
    added: int


def write_pool(file: Path, config: RunConfig, open_engines: OpenEngines, *, environments: int) -> Written:
    """Write sets until `file` holds at least `environments` environments; sets that are there are kept.

    Raises `UserError` when the file was written by another model or with other settings, or holds anything else.
    """
    with ExitStack() as stack:
        session, origin = _opened(stack, config, open_engines)
        kept = _kept_lines(file, origin)
        before = len(kept)
        done = kept[-1]["set"] + 1 if kept else 0
        if session.state.corpus is not None:
            for _ in range(kept[-1]["drawn"] if kept else 0):
                session.state.corpus.draw()
        failures = 0
        while len(kept) < environments:
            written = _write_set(session, done)
            failures = 0 if written else failures + 1
            if failures == 2:
                raise UserError(
                    "two sets in a row without a program that passes the gates: this model cannot write a pool"
                )
            lines = [_line(session, e, done, len(written), origin) for e in written]
            _append(file, lines)
            kept += lines
            done += 1
    return Written(len(kept), len(kept) - before)


def _write_set(session: Session, number: int) -> list[Environment]:
    """One set with its hints, as rollout number · k of a run without memory would get it."""
    rollout = number * session.config.schedule.regenerate_every
    session.log.enter_rollout(rollout)
    session.start_record()
    session.meter.start_rollout()
    # Empties the sampler's caches, so that a set does not depend on the sets this process wrote before.
    session.policy.sampler.load_weights(session.learner.weights())
    environments = [designed.environment for designed in design_environments(session, rollout)]
    if environments and session.config.schedule.hinted_plays:
        write_hints(session, environments)
    return environments


def _line(session: Session, environment: Environment, number: int, size: int, origin: dict[str, str]) -> dict[str, Any]:
    return {
        "id": environment.key,
        "skill": environment.skill,
        "class_name": environment.class_name,
        "document": environment.document,
        "hint_state": environment.hint_state,
        "hint": environment.hint,
        "code": environment.code,
        "set": number,
        "of": size,
        "drawn": session.state.corpus.drawn if session.state.corpus else 0,
        **origin,
    }


@contextmanager
def _scratch() -> Iterator[RunDirectory]:
    with tempfile.TemporaryDirectory(prefix="pool-") as directory:
        yield RunDirectory(Path(directory))


def _opened(stack: ExitStack, config: RunConfig, open_engines: OpenEngines) -> tuple[Session, dict[str, str]]:
    """A session whose events and files go to a scratch directory, and what every line says about its origin."""
    run = stack.enter_context(_scratch())
    pool = open_pool(config)
    stack.callback(pool.close)
    engines = open_engines(config, {})
    stack.callback(engines.learner.close)
    stack.callback(engines.sampler.close)
    log = EventLog(run, 1, rollout=0)
    stack.callback(log.close)
    state = TrainingState.fresh(config, load_corpus(config.corpus))
    session = Session(
        config=config,
        run=run,
        log=log,
        state=state,
        control=Control(run, attempt=1, log=log, state=state, stop=StopRequest()),
        policy=Policy(engines.sampler, engines.chat, thinking=config.model.thinking),
        learner=engines.learner,
        pool=pool,
        prompts=prompt_set(config.prompts),
        checkpoints=Checkpoints(run, config.checkpoint),
        meter=Meter(log),
        model_directory=engines.model_directory,
    )
    return session, {"model": model_fingerprint(engines.model_directory), "settings": _settings_of(config)}


def _settings_of(config: RunConfig) -> str:
    values = config.model_dump(mode="json", include=set(_SETTINGS))
    schedule = {name: value for name, value in values["schedule"].items() if name not in _NOT_OF_THE_SCHEDULE}
    return settings_fingerprint(values | {"schedule": schedule})


def _kept_lines(file: Path, origin: dict[str, str]) -> list[dict[str, Any]]:
    """The whole sets of the file; a torn last set is cut off. Raises `UserError` when it is not this command's."""
    if not file.exists():
        return []
    kept: list[dict[str, Any]] = []
    size = 0
    block: list[dict[str, Any]] = []
    block_bytes = 0
    line_of_ours = False
    for line in file.read_bytes().splitlines(keepends=True):
        try:
            record = json.loads(line)
            block.append(record)
            block_bytes += len(line)
            foreign = {name: record[name] for name in origin} != origin
            whole = line.endswith(b"\n") and len(block) == int(record["of"])
        except (ValueError, KeyError, TypeError) as error:
            torn = not line.endswith(b"\n") and (line_of_ours or _OWN_LINE.match(line) is not None)
            if not torn:  # a torn line is cut off, but not out of somebody else's file
                raise UserError(f"{file} is no pool this command wrote ({error}); give another file") from error
            break
        if foreign:
            raise UserError(
                f"{file} was written by another model or with other settings; give another file or remove it"
            )
        line_of_ours = True
        if whole:
            kept += block
            size += block_bytes
            block, block_bytes = [], 0
    if size < file.stat().st_size:
        os.truncate(file, size)
    return kept


def _append(file: Path, lines: Sequence[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="ascii") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise disk_error(error, str(file)) from error
