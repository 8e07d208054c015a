"""Doing the comparison: every arm and seed whose result is not there yet is trained in its own process, evaluated and stored.

It can be stopped at any time: a finished run is a file, an unfinished one goes on from its last checkpoint, on this machine or, from the
results, on another one.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer.checkpoint import Checkpoints
from trainer.config import RunConfig
from trainer.creation import read_config
from trainer.engines import open_engines
from trainer.errors import InfrastructureError, UserError
from trainer.eventlog import attempts, read_events
from trainer.events import FAULTS
from trainer.exit_codes import EXIT_CODES
from trainer.experiments.arms import SPADE, Arm, Plan, arm_named
from trainer.experiments.evaluate import Evaluator, Score
from trainer.experiments.results import (
    UNTOUCHED,
    Exploration,
    Rate,
    Result,
    Untouched,
    append_exploration,
    read_result,
    read_untouched,
    result_path,
    write,
)
from trainer.experiments.sets import EvaluationSet, SetName, load_set
from trainer.fixed_pool import BUILTIN_POOLS, load_pool
from trainer.fork import changes
from trainer.provenance import commit, hardware, model_fingerprint, settings_fingerprint
from trainer.rundir import RunDirectory
from trainer.weights import parameter_count, resolve_model_path
from trainer.write_pool import write_pool

CURVE = (
    "win_rate/unhinted", "win_rate/hinted", "regret/mean", "band/learnable_share", "gates/pass_rate", "designer/reward_mean",
    "designer/win_rate_mean", "diversity/vendi_share", "diversity/vendi_recent_share", "group/frac_zero_spread", "loss/entropy",
)  # fmt: skip
_LOG_LINES = 5
_DIGITS = 4

Say = Callable[[str], None]
Sets = Mapping[SetName, EvaluationSet]


def stored_sets() -> Sets:
    """The two sets of the repository."""
    return {"probe": load_set("probe"), "heldout": load_set("heldout")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One plan with its model and evaluation sets."""

    plan: Plan
    sets: Sets
    say: Say

    def run(self, arms: Sequence[Arm], seeds: Iterable[int]) -> list[Path]:
        """All runs that are missing, seed by seed over all arms; returns their result files."""
        written: list[Path] = []
        for seed in seeds:
            for arm in arms:
                path = self.one(arm, seed)
                if path is not None:
                    written.append(path)
        return written

    def one(self, arm: Arm, seed: int) -> Path | None:
        """Train, evaluate and store one run; None when its result is there. Raises `InfrastructureError` when the trainer fails."""
        config = self.plan.config(arm, seed)
        directory = resolve_model_path(config.model.path)
        model = model_fingerprint(directory)
        parts = {str(name): programs.fingerprint for name, programs in self.sets.items()}
        if config.pool.path:
            with _alone(self.plan.work):
                parts["pool"] = self._pool(config)
        settings = self.plan.fingerprint(arm, parts)
        path = result_path(self.plan.results, model, arm.name, seed)
        if path.exists() and read_result(path).settings == settings:
            self.say(f"{arm.name}, seed {seed}: there already")
            return None
        with _alone(self.plan.work):
            before = self._untouched(directory, model)
        run = RunDirectory(self.plan.work / f"{model}-{settings}-{arm.name}-{seed}")
        started = time.monotonic()
        self.say(f"{arm.name}, seed {seed}: {'going on' if run.config.exists() else 'training'} in {run.root}")
        ended = _train(run, config)
        trained = time.monotonic() - started
        self.say(
            f"{arm.name}, seed {seed}: trained for {trained:.0f} s, {f'ended early ({ended}), ' if ended else ''}evaluating"
        )
        result = self._evaluated(run, config, arm, seed, model, settings, before, ended)
        write(path, result)
        self.say(f"{arm.name}, seed {seed}: held-out {_points(before.heldout)} -> {_points(result.heldout)}, "
                 f"probe {_points(before.probe)} -> {_points(result.probe)} ({path})")  # fmt: skip
        if not self.plan.keep_runs:
            shutil.rmtree(run.root, ignore_errors=True)
        return path

    def explore(self, changed: Mapping[str, Any], seed: int) -> Exploration:
        """Train SPADE with some settings changed and play the probe set only; one more line in the log of explorations."""
        plan = replace(self.plan, overrides={**self.plan.overrides, **changed})
        config = plan.config(arm_named(SPADE), seed)
        directory = resolve_model_path(config.model.path)
        model = model_fingerprint(directory)
        run = RunDirectory(plan.work / f"explore-{model}-{settings_fingerprint(dict(changed))}-{seed}")
        self.say(f"exploring {dict(changed) or 'the preset as it is'}, seed {seed}, in {run.root}")
        ended = _train(run, config)
        curve = {"0": _rate(self._play(directory, config, "probe")).win_rate}
        for done in sorted(int(path.name) for path in run.checkpoints.iterdir() if path.name.isdigit()):
            curve[str(done)] = _rate(self._play(run.checkpoint(done) / "model", config, "probe")).win_rate
        facts = facts_of(run)
        found = Exploration(
            model=model,
            commit=commit(),
            changed=dict(changed),
            seed=seed,
            rollouts=max(map(int, curve)),
            probe_before=curve["0"],
            probe_curve=curve,
            train_seconds=facts["train_seconds"],
            ended_early=ended,
        )
        append_exploration(plan.results, found)
        self.say(f"probe set: {', '.join(f'{done}: {_percent(rate)}' for done, rate in curve.items())}")
        if not plan.keep_runs:
            shutil.rmtree(run.root, ignore_errors=True)
        return found

    def _untouched(self, directory: Path, model: str) -> Untouched:
        """Scores of the model before training; measured once per model, sets and playing rules."""
        config = self.plan.config(_ANY_ARM, 0)
        sets = {str(name): programs.fingerprint for name, programs in self.sets.items()}
        evaluation = _evaluation_fingerprint(self.plan.config_for_any_model(_ANY_ARM, 0), self.plan.plays)
        path = self.plan.results / model / f"{UNTOUCHED}.json"
        if path.exists():
            stored = read_untouched(path)
            if (stored.sets, stored.evaluation) == (sets, evaluation):
                return stored
        self.say(f"evaluating the untouched model {model}")
        started = time.monotonic()
        with Evaluator.of_model(directory, config) as evaluator:
            scores = {name: evaluator.play(programs, plays=self.plan.plays) for name, programs in self.sets.items()}
        measured = Untouched(
            model=model,
            parameters=parameter_count(directory),
            sets=sets,
            evaluation=evaluation,
            probe=_rate(scores["probe"]),
            heldout=_rate(scores["heldout"]),
            seconds=round(time.monotonic() - started, 1),
        )
        write(path, measured)
        return measured

    def _evaluated(
        self, run: RunDirectory, config: RunConfig, arm: Arm, seed: int, model: str, settings: str, before: Untouched,
        ended: str | None,
    ) -> Result:  # fmt: skip
        problems: list[str] = []
        last = Checkpoints(run, config.checkpoint).newest(problems.append)
        if last is None or (ended is None and last.next_rollout != config.schedule.rollouts):
            raise InfrastructureError(f"{run.root} has no whole checkpoint of its last rollout ({'; '.join(problems)})")
        started = time.monotonic()
        curve: dict[str, float | None] = {"0": before.probe.win_rate}
        for done in sorted(int(path.name) for path in run.checkpoints.iterdir() if path.name.isdigit()):
            if done != last.next_rollout:
                curve[str(done)] = _rate(self._play(run.checkpoint(done) / "model", config, "probe")).win_rate
        probe = _rate(self._play(last.model_directory, config, "probe"))
        heldout = _rate(self._play(last.model_directory, config, "heldout"))
        curve[str(last.next_rollout)] = probe.win_rate
        facts = facts_of(run)
        return Result(
            arm=arm.name,
            seed=seed,
            model=model,
            settings=settings,
            commit=commit(),
            cores=int(hardware()["cores"]),
            rollouts=last.next_rollout,
            ended_early=ended,
            probe_before=before.probe.win_rate,
            heldout_before=before.heldout.win_rate,
            probe=probe,
            heldout=heldout,
            probe_curve=curve,
            evaluate_seconds=round(time.monotonic() - started, 1),
            **facts,
        )

    def _play(self, model: Path, config: RunConfig, name: SetName) -> Score:
        with Evaluator.of_model(model, config) as evaluator:
            return evaluator.play(self.sets[name], plays=self.plan.plays)

    def _pool(self, config: RunConfig) -> str:
        """Digest of the fixed pool; it is written first, with the untouched model, when it is another model's or not complete."""
        builtin = BUILTIN_POOLS.get(config.pool.path)
        file = builtin or Path(config.pool.path)
        designer = self.plan.config(_ANY_ARM, 0)
        try:
            written = write_pool(file, designer, open_engines, environments=self.plan.pool_environments)
        except UserError as error:
            if builtin is None:
                raise
            self.say(f"the pool is written anew: {error}")
            builtin.unlink()
            written = write_pool(file, designer, open_engines, environments=self.plan.pool_environments)
        if written.added:
            self.say(f"{written.added} environments written into the fixed pool {file}")
        pool = load_pool(config.pool)
        assert pool is not None, "only called for runs on a fixed pool"
        return pool.digest


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """What all runs share (pool, scores of the untouched model) is made by one process at a time; others wait for it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_ANY_ARM = Arm(UNTOUCHED, "untouched model", "demo")


def _evaluation_fingerprint(config: RunConfig, plays: int) -> str:
    values = config.model_dump(mode="json", include={"agent", "prompts", "model"})
    return settings_fingerprint(values | {"plays": plays})


def _train(run: RunDirectory, config: RunConfig) -> str | None:
    """Start the run, or go on with it, in a process of its own. Returns why it ended early, None when all rollouts were done.

    A designer that writes nothing sound any more is a result, not a failure. Raises `InfrastructureError` with the end of its output.

    Raises `UserError` when the unfinished run has other settings: going on with it would not be what was asked for.
    """
    command = [sys.executable, "-m", "trainer"]
    if run.attempts.exists():
        differ = changes(read_config(run), config)
        if differ:
            told = "; ".join(f"{name} {there} there, {now} now" for name, (there, now) in differ.items())
            raise UserError(
                f"{run.root} is unfinished and has other settings ({told}); remove it, or give another --work to leave it"
            )
        command += ["resume", str(run.root)]
    else:
        shutil.rmtree(run.root, ignore_errors=True)
        settings = run.root.with_suffix(".json")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(config.model_dump(mode="json")), encoding="ascii")
        command += ["run", str(run.root), "--config", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    gave_out = _gave_out(run) if done.returncode == EXIT_CODES["limit"] else None
    if gave_out is not None:
        return gave_out
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_LOG_LINES:])
        raise InfrastructureError(f"the run in {run.root} ended with code {done.returncode}:\n{tail}")
    states = [
        e["payload"]["state"] for n in attempts(run)[-1:] for e in read_events(run, n) if e["kind"] == "run_state"
    ]
    if states[-1:] != ["completed"]:
        raise InfrastructureError(f"the run in {run.root} was stopped; the same command goes on with it")
    with suppress(FileNotFoundError):
        run.root.with_suffix(".json").unlink()
    return None


def _gave_out(run: RunDirectory) -> str | None:
    """The message of a run whose last attempt ended because no design of a rollout passed the gates; None for any other end."""
    events = [e for number in attempts(run)[-1:] for e in read_events(run, number)]
    last = events[-1] if events else None
    if last is None or last["kind"] != "run_state" or last["payload"]["state"] != "failed":
        return None
    designs = [e["payload"] for e in events if e["kind"] == "candidate" and e["rollout"] == last["rollout"]]
    if not designs or any(design["accepted"] for design in designs):
        return None
    reason: str = last["payload"]["reason"]
    if "design attempts passed the gates" not in reason:
        return None  # some other limit, such as the disk's, met after the designs
    return reason.rsplit("; ", 1)[0]


def facts_of(run: RunDirectory) -> dict[str, Any]:
    """Episode counts, curves and training time of a finished run; later attempts supersede the rollouts they did again."""
    counts: dict[int, dict[str, int]] = {}
    metrics: dict[int, Mapping[str, float | None]] = {}
    seconds: dict[int, float] = {}
    for number in attempts(run):
        for event in read_events(run, number):
            rollout, payload = event["rollout"], event["payload"]
            if event["kind"] == "rollout_started":
                counts[rollout] = {"unhinted": 0, "hinted": 0, "faulted": 0}
            elif event["kind"] == "episode":
                counts[rollout]["faulted" if payload["status"] in FAULTS else payload["arm"]] += 1
            elif event["kind"] == "metrics":
                metrics[rollout] = payload["values"]
            elif event["kind"] == "rollout_finished":
                seconds[rollout] = float(payload["elapsed_s"])
    order = sorted(metrics)
    return {
        **{f"episodes_{kind}": sum(c[kind] for c in counts.values()) for kind in ("unhinted", "hinted", "faulted")},
        "curve": {name: [_rounded(metrics[r].get(name)) for r in order] for name in CURVE},
        "train_seconds": round(sum(seconds.values()), 1),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _rate(score: Score) -> Rate:
    return Rate.model_validate(score.to_dict())


def _points(rate: Rate) -> str:
    return _percent(rate.win_rate)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
