"""The trainer under random kills, and its memory over a long run, with the built-in model and the `tiny` preset.

    python -m tests.trainer.soak kills [--kills 20] [--runs 4] [--rollouts 12] [--seed 0]
    python -m tests.trainer.soak memory [--rollouts 200]

`kills` does one run in peace, then others that SIGKILL ends at random instants, resumed until they are complete; weights, optimiser,
memory, metrics, events, token ids and environment files must equal the first one's bit for bit, wall-clock fields aside. Three such
kills are in the test suite (loop/test_resume.py). `memory` does one long run and compares the memory of the trainer process in its
last 20 rollouts with that in rollouts 21 to 40 (means: one rollout differs from the next by a tenth). Exit code 1: not as it must be.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.trainer.compare import assert_same_run
from trainer.eventlog import attempts, event_files, read_events
from trainer.rundir import RunDirectory

ROOT = Path(__file__).parents[2]
# One thread: sums in another order are other numbers. A long limit: a busy machine must not make an environment look hung.
SETTINGS = ("engine.threads=1", "sandbox.step_timeout_s=60", "checkpoint.keep_last=2")
LASTING = ("optim.learning_rate=1e-6",)  # at the preset's rate the designer gives out after about 100 rollouts
SHARE_KILLED_WHILE_STARTING = 0.2
LONGEST_MOMENT_S = 1.0
SETTLED_ROLLOUTS = 20
LARGEST_GROWTH = 0.05


def start(directory: Path, rollouts: int, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """The next attempt, in a process group of its own."""
    arguments = ["resume", str(directory)]
    if not (directory / "config.json").exists():
        settings = [part for s in (*SETTINGS, *more, f"schedule.rollouts={rollouts}") for part in ("--set", s)]
        arguments = ["run", str(directory), "--preset", "tiny", *settings]
    with directory.with_name(f"{directory.name}.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer", *arguments], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def finish(directory: Path, rollouts: int, more: Sequence[str] = ()) -> None:
    """Let the run come to its end. Raises RuntimeError when it does not end well."""
    process = start(directory, rollouts, more)
    if process.wait() != 0:
        raise RuntimeError(f"the trainer ended with {process.returncode}: see {directory}.log")


def kill_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """SIGKILL to the trainer and all it started; False when it ended by itself before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def wait_for_events(process: subprocess.Popen[bytes], run: RunDirectory, attempt: int, count: int) -> None:
    """Until the attempt has written so many events, or has ended."""
    while process.poll() is None and lines_of(run, attempt) < count:
        time.sleep(0.02)


def lines_of(run: RunDirectory, attempt: int) -> int:
    """Events an attempt has written."""
    return sum(path.read_bytes().count(b"\n") for path in event_files(run, attempt))


def where(directory: Path) -> str:
    """The last thing the killed attempt reported."""
    run = RunDirectory(directory)
    numbers = attempts(run)
    if not numbers or not event_files(run, numbers[-1]):
        return "before its first event"
    last = next(iter(deque(read_events(run, numbers[-1]), maxlen=1)), None)
    return (
        f"attempt {numbers[-1]}, rollout {last['rollout']}, after {last['kind']}" if last else "before its first event"
    )


@dataclass(frozen=True, slots=True)
class Whole:
    """A run that nothing interrupted: what killed ones are compared with, how long it took to start, and its events."""

    directory: Path
    rollouts: int
    startup_s: float
    events: int


def run_in_peace(directory: Path, rollouts: int) -> Whole:
    """Do a whole run. Raises RuntimeError when it does not end well."""
    began = time.time()
    finish(directory, rollouts)
    took, run = time.time() - began, RunDirectory(directory)
    whole = Whole(directory, rollouts, float(next(read_events(run, 1))["time"]) - began, lines_of(run, 1))
    print(f"uninterrupted: {rollouts} rollouts, {whole.events} events, in {took:.0f} s", flush=True)
    return whole


def kill_runs(whole: Whole, folder: Path, *, kills: int, runs: int, seed: int) -> int:
    """Kill and resume runs like `whole` until all kills have hit; prints each kill and returns how many runs came out different."""
    rng = random.Random(seed)
    print(f"{kills} kills in {runs} runs at instants drawn with seed {seed}", flush=True)
    differ = done = 0
    for number in range(runs):
        directory, due = folder / f"killed{number}", kills // runs + (number < kills % runs)
        while due:
            # While it starts, an instant is a time; while it works, a number of events and a moment: a machine that is busy now
            # and idle then does not move it.
            early = rng.random() < SHARE_KILLED_WHILE_STARTING
            count = 0 if early else round(rng.uniform(0, 1.6 * runs / kills) * whole.events) + 1
            seconds = rng.uniform(0, whole.startup_s if early else LONGEST_MOMENT_S)
            attempt = len(attempts(RunDirectory(directory))) + 1
            process = start(directory, whole.rollouts)
            wait_for_events(process, RunDirectory(directory), attempt, count)
            if kill_after(process, seconds):
                due, done = due - 1, done + 1
                print(
                    f"kill {done}: run {number}, {count} events and {seconds:.2f} s later, {where(directory)}",
                    flush=True,
                )
            else:  # complete before all its kills were due: the others hit a new run
                differ += not is_equal(whole.directory, directory)
        finish(directory, whole.rollouts)
        differ += not is_equal(whole.directory, directory)
    print(f"{done} kills in {runs} runs, {differ} comparisons failed", flush=True)
    return differ


def is_equal(whole: Path, directory: Path) -> bool:
    """Whether a run that was killed equals the other one; one that does is removed, one that does not is kept for a look."""
    numbers = attempts(RunDirectory(directory))
    try:
        assert_same_run(RunDirectory(whole), RunDirectory(directory))
    except AssertionError as error:
        aside = directory.with_name(f"{directory.name}-differs-{len(numbers)}")
        directory.rename(aside)
        print(f"DIFFERS after {len(numbers)} attempts, kept in {aside}: {str(error)[:2000]}", flush=True)
        return False
    print(f"equal to the uninterrupted run after {len(numbers)} attempts", flush=True)
    shutil.rmtree(directory)
    return True


def soak_memory(folder: Path, *, rollouts: int) -> int:
    directory = folder / "memory"
    finish(directory, rollouts, LASTING)
    return report_memory(RunDirectory(directory))


def report_memory(run: RunDirectory) -> int:
    """Print the memory of a finished run every 20 rollouts and its growth; 1 when it grew by more than `LARGEST_GROWTH`."""
    held = {
        e["rollout"]: e["payload"]["values"]["perf/resident_bytes"]
        for number in attempts(run)
        for e in read_events(run, number)
        if e["kind"] == "metrics"
    }
    for rollout in sorted(held)[SETTLED_ROLLOUTS - 1 :: 20]:
        print(f"rollout {rollout + 1:4d}  {held[rollout] / 2**20:8.1f} MiB")
    values = [held[rollout] for rollout in sorted(held)]
    settled, last = (
        sum(part) / len(part) for part in (values[SETTLED_ROLLOUTS : 2 * SETTLED_ROLLOUTS], values[-SETTLED_ROLLOUTS:])
    )
    growth = last / settled - 1
    print(f"growth of the mean from rollouts 21 to 40 to the last {SETTLED_ROLLOUTS} of {len(values)}: {growth:+.1%}")
    return 1 if growth > LARGEST_GROWTH else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "memory"), nargs="?", default="kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--runs", type=int, default=4, help="runs the kills are spread over")
    parser.add_argument("--rollouts", type=int, help="12 for kills, 200 for memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the runs go; a temporary folder without it")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="trainer-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "memory":
        code = soak_memory(folder, rollouts=options.rollouts or 200)
    else:
        whole = run_in_peace(folder / "whole", options.rollouts or 12)
        code = int(kill_runs(whole, folder, kills=options.kills, runs=options.runs, seed=options.seed) > 0)
    if code == 0 and options.folder is None:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
