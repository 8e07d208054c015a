"""Starting and ending an attempt: the run directory, its lock, the engines, and what the end is called (exit codes).

`python -m trainer run` makes a run directory and does its first attempt; `resume` does the next attempt from the newest whole checkpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import UNSANDBOXED, GuessRule, Limits, Sandbox, SandboxUnavailable
from trainer.address_space import is_out_of_memory
from trainer.checkpoint import Checkpoints, Loaded
from trainer.config import RunConfig
from trainer.control import Control, StopRequest
from trainer.corpus import load_corpus
from trainer.creation import create as create
from trainer.creation import forked_from, read_config
from trainer.draw import admit_pool
from trainer.errors import Cancelled, InfrastructureError, Owner, TrainerError, UserError
from trainer.eventlog import EventLog, attempts, read_events, repair
from trainer.events import (
    KINDS,
    CheckpointSaved,
    CorpusLoaded,
    EnvironmentStateChanged,
    EnvironmentWeighted,
    RunStarted,
    RunStateChanged,
    Warned,
)
from trainer.exit_codes import EXIT_CODES
from trainer.fixed_pool import load_pool
from trainer.learn.engine import Learner
from trainer.loop import run_rollouts
from trainer.meter import Meter
from trainer.policy import Policy
from trainer.prompts.sets import prompt_set
from trainer.provenance import versions
from trainer.rollout.engine import Sampler
from trainer.rollout.pool import EnvironmentPool
from trainer.rollout.tokens import ChatFormat
from trainer.rundir import RunDirectory
from trainer.session import Session
from trainer.state import TrainingState

_HARD_LIMIT_MARGIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Engines:
    """What generates and learns in one attempt, with the tokenizer both share."""

    sampler: Sampler
    learner: Learner
    chat: ChatFormat
    model_directory: Path


OpenEngines = Callable[[RunConfig, Mapping[str, Any]], Engines]
"""Opens the engines of the run's own model; the mapping holds what an earlier attempt measured (threads)."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt before its engines are open."""

    run: RunDirectory
    config: RunConfig
    number: int
    log: EventLog
    checkpoints: Checkpoints
    loaded: Loaded | None
    problems: list[str]
    stop: StopRequest


def attempt(run: RunDirectory, open_engines: OpenEngines, *, listen: Callable[[EventLog], None] | None = None) -> int:
    """Do the next attempt of a run to its end; returns the exit code. Every end but a full disk leaves a `run_state` event.

    Raises `UserError` when the directory holds no run or is in use. Installs signal handlers: call it from the main thread.
    """
    config = read_config(run)  # first: nothing is written into a directory that is no run's
    with _locked(run), _stop_on_signals() as stop:
        previous = attempts(run)
        if previous:
            repair(run, previous[-1])
        checkpoints, problems = Checkpoints(run, config.checkpoint), list[str]()
        loaded, refused = _newest(checkpoints, problems)
        number = previous[-1] + 1 if previous else 1
        log = EventLog(run, number, rollout=loaded.next_rollout if loaded else 0)
        this = _Attempt(run, config, number, log, checkpoints, loaded, problems, stop)
        try:
            if listen is not None:
                listen(log)
            if refused is not None:
                raise refused
            _do(this, open_engines)
            code = 0
        except Cancelled as end:
            log.emit(RunStateChanged(state="stopped", reason=str(end)))
            code = EXIT_CODES["cancelled"]
        except Exception as error:  # noqa: BLE001 - the end of a run is reported whatever ended it
            code = _report_failure(log, error)
        finally:
            log.sync()
            log.close()
        return code


def _newest(checkpoints: Checkpoints, problems: list[str]) -> tuple[Loaded | None, UserError | None]:
    """The checkpoint to go on from, or why the attempt, once it has a log to say so in, must end at once."""
    try:
        return checkpoints.newest(problems.append), None
    except UserError as error:
        return None, error


def _do(this: _Attempt, open_engines: OpenEngines) -> None:
    """Open everything, do the rollouts that are left, and close everything again."""
    state = TrainingState.fresh(this.config, load_corpus(this.config.corpus), load_pool(this.config.pool))
    if this.loaded is not None:
        this.problems.extend(state.load_dict(this.loaded.state))
    with ExitStack() as stack:
        pool = open_pool(this.config)
        stack.callback(pool.close)
        engines = open_engines(_with_start_model(this.run, this.config), state.engine)
        stack.callback(engines.learner.close)
        stack.callback(engines.sampler.close)
        if this.loaded is not None:
            engines.learner.load_state(this.loaded.model_directory, this.loaded.learner_state)
            engines.sampler.load_weights(engines.learner.weights())
        session = _session(this, state, engines, pool)
        _announce(session, this)
        admit_pool(session)
        _run(session)


def _with_start_model(run: RunDirectory, config: RunConfig) -> RunConfig:
    """A fork starts from its own copy of the source's weights, wherever the source's model was."""
    if not run.start.is_dir():
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"path": str(run.start)})})


def _run(session: Session) -> None:
    try:
        run_rollouts(session)
    except Cancelled:
        session.save_now()
        raise
    session.log.emit(RunStateChanged(state="completed"))


def _session(this: _Attempt, state: TrainingState, engines: Engines, pool: EnvironmentPool) -> Session:
    state.engine = {"threads": engines.sampler.describe().get("threads")}
    control = Control(this.run, attempt=this.number, log=this.log, state=state, stop=this.stop)
    session = Session(
        config=this.config,
        run=this.run,
        log=this.log,
        state=state,
        control=control,
        policy=Policy(engines.sampler, engines.chat, thinking=this.config.model.thinking),
        learner=engines.learner,
        pool=pool,
        prompts=prompt_set(this.config.prompts),
        checkpoints=this.checkpoints,
        meter=Meter(this.log, control.running_s),
        model_directory=engines.model_directory,
    )
    control.save_now = session.save_now
    session.mark_finished()
    return session


def _announce(session: Session, this: _Attempt) -> None:
    """First events of an attempt: who runs, from where, on what; then what was odd about the checkpoint or the corpus."""
    log, loaded, origin = this.log, this.loaded, forked_from(this.run)
    log.emit(
        RunStarted(
            attempt=this.number,
            start_rollout=session.state.next_rollout,
            total_rollouts=session.config.schedule.rollouts,
            checkpoint=loaded.name if loaded else None,
            forked_from={name: origin[name] for name in ("run", "checkpoint", "changed")} if origin else None,
            pid=os.getpid(),
            engine={
                "sampler": dict(session.policy.sampler.describe()),
                "learner": dict(session.learner.describe()),
                "model": str(session.model_directory),
            },
            versions=versions(),
            sandbox_tier=session.pool.tier,
        )
    )
    log.emit(RunStateChanged(state="running"))
    for problem in this.problems:
        log.emit(Warned(message=problem, where="resume"))
    for message in session.config.warnings():
        log.emit(Warned(message=message, where="settings"))
    if session.pool.tier == UNSANDBOXED:
        log.emit(
            Warned(message="generated code runs WITHOUT isolation, as this machine's operator has set", where="sandbox")
        )
    if session.state.corpus is not None:
        corpus = session.state.corpus
        log.emit(CorpusLoaded(source=corpus.source, documents=len(corpus.documents), skipped=corpus.skipped))
    if loaded is not None and origin and loaded.name == origin["checkpoint"]:
        _report_inherited(session, loaded.next_rollout)
    if loaded is not None and not _was_reported(this.run, this.number, loaded.name):
        size = sum(p.stat().st_size for p in loaded.model_directory.parent.rglob("*") if p.is_file())
        log.emit(CheckpointSaved(name=loaded.name, next_rollout=loaded.next_rollout, bytes=size, elapsed_s=0.0))
    log.sync()


def _report_inherited(session: Session, rollout: int) -> None:
    """Tell what a fork took over as if it had just happened, in every attempt that begins where the fork does."""
    session.log.enter_rollout(rollout)
    for line in session.run.inherited.read_text(encoding="ascii").splitlines():
        told = json.loads(line)
        session.log.emit(KINDS[told["kind"]].model_validate(told["payload"]))
    state = session.state
    for key, reason in state.barred.items():
        session.log.emit(EnvironmentStateChanged(environment=key, state="barred", reason=reason))
    for key, reason in state.quarantined.items():
        session.log.emit(EnvironmentStateChanged(environment=key, state="quarantined", reason=reason))
    for key, weight in state.weights.items():
        session.log.emit(EnvironmentWeighted(environment=key, weight=weight))


def _was_reported(run: RunDirectory, number: int, name: str) -> bool:
    """Whether an earlier attempt lived long enough to report this checkpoint; the next attempt reports it otherwise."""
    return any(
        event["kind"] == "checkpoint" and event["payload"]["name"] == name
        for earlier in attempts(run)
        if earlier < number
        for event in read_events(run, earlier)
    )


def open_pool(config: RunConfig) -> EnvironmentPool:
    """The sandbox with the run's limits and guess rule. Raises `InfrastructureError` when this machine cannot isolate."""
    guess = GuessRule(seeds=config.gates.guess_seeds, largest_rate=config.gates.max_guess_rate)
    return EnvironmentPool(_open_sandbox(config), kind=config.environment_kind, guess=guess)


def _open_sandbox(config: RunConfig) -> Sandbox:
    limits = Limits(
        step_soft_s=config.sandbox.step_timeout_s,
        step_hard_s=config.sandbox.step_timeout_s + _HARD_LIMIT_MARGIN_S,
        memory_bytes=config.sandbox.memory_bytes,
        source_bytes=config.gates.source_bytes,
    )
    try:
        return Sandbox(limits, config.sandbox.minimum_tier)
    except SandboxUnavailable as error:
        raise InfrastructureError(str(error)) from error
    except ValueError as error:
        raise UserError(f"sandbox settings: {error}") from error


def _report_failure(log: EventLog, error: Exception) -> int:
    """Event `run_state failed` if the disk allows, one line on stderr; a bug's traceback goes there too."""
    owner, message = _owner_and_message(error)
    try:
        log.emit(RunStateChanged(state="failed", reason=message, owner=owner))
    except TrainerError as unwritten:
        message = f"{message} (the failure could not be logged: {unwritten})"
    with suppress(OSError):  # nobody reads stderr any more
        if owner == "bug":
            traceback.print_exception(error, file=sys.stderr)
        print(f"trainer: {owner}: {message}", file=sys.stderr, flush=True)  # noqa: T201
    return EXIT_CODES[owner]


def _owner_and_message(error: Exception) -> tuple[Owner, str]:
    if isinstance(error, TrainerError):
        return error.owner, str(error)
    said = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    if is_out_of_memory(error):
        return "limit", (
            f"memory ran out ({said}): free some and resume, or start or fork with a smaller optim.micro_batch_tokens (learning) or "
            "engine.sampler_batch (sampling)"
        )
    return "bug", f"{type(error).__name__}: {error}"


@contextmanager
def _locked(run: RunDirectory) -> Iterator[None]:
    """Hold the run directory's lock; the kernel drops it when the process dies. Raises `UserError` when another trainer has it."""
    try:
        file = run.lock.open("a+")
    except OSError as error:
        raise UserError(f"cannot use {run.root} as a run directory: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"{run.root} is in use by another trainer (pid {_holder(run)}); stop that one first"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _holder(run: RunDirectory) -> str:
    return run.lock.read_text(encoding="ascii", errors="replace").strip() or "unknown"


@contextmanager
def _stop_on_signals() -> Iterator[StopRequest]:
    """SIGTERM and SIGINT stop the run at the next safe point, from the moment the lock is held."""
    request = StopRequest()

    def stop(number: int, _frame: object) -> None:
        request.ask(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
