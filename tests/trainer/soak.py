"""The trainer under random kills, and its memory over a long run, with the built-in model and the `tiny` preset.

    python -m tests.trainer.soak kills [--kills 20] [--runs 4] [--rollouts 12] [--seed 0]
    python -m tests.trainer.soak memory [--rollouts 200]

`kills` does one run in peace, then others that SIGKILL ends at random instants, resumed until they are complete; weights, optimiser,
memory, metrics, events, token ids and environment files must equal the first one's bit for bit, wall-clock fields aside. `memory` does
one long run and compares the memory of the trainer process in its last 20 rollouts with that in rollouts 21 to 40 (means: one rollout
differs from the next by a tenth). Exit code 1: not as it must be.
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
from pathlib import Path

from tests.trainer.compare import assert_same_run
from trainer.eventlog import attempts, event_files, read_events
from trainer.rundir import RunDirectory

ROOT = Path(__file__).parents[2]
# One thread: sums in another order are other numbers. A long limit: a busy machine must not make an environment look hung.
SETTINGS = ("engine.threads=1", "sandbox.step_timeout_s=60", "checkpoint.keep_last=2")
SHARE_KILLED_WHILE_STARTING = 0.2
SETTLED_ROLLOUTS = 20
LARGEST_GROWTH = 0.05


def start(directory: Path, rollouts: int) -> subprocess.Popen[bytes]:
    """The next attempt, in a process group of its own."""
    arguments = ["resume", str(directory)]
    if not (directory / "config.json").exists():
        settings = [part for s in (*SETTINGS, f"schedule.rollouts={rollouts}") for part in ("--set", s)]
        arguments = ["run", str(directory), "--preset", "tiny", *settings]
    with directory.with_name(f"{directory.name}.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer", *arguments], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def finish(directory: Path, rollouts: int) -> None:
    """Let the run come to its end. Raises RuntimeError when it does not end well."""
    process = start(directory, rollouts)
    if process.wait() != 0:
        raise RuntimeError(f"the trainer ended with {process.returncode}: see {directory}.log")


def kill_at(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """SIGKILL to the trainer and all it started; False when it ended by itself before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def wait_for_events(process: subprocess.Popen[bytes], run: RunDirectory, attempt: int) -> None:
    """Until the attempt has written its first event, or has ended."""
    while process.poll() is None and not event_files(run, attempt):
        time.sleep(0.05)


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


def soak_kills(folder: Path, *, kills: int, runs: int, rollouts: int, seed: int) -> int:
    """Print each kill and each comparison; 1 when a run differs."""
    rng = random.Random(seed)
    whole = folder / "whole"
    began = time.time()
    finish(whole, rollouts)
    first = float(next(read_events(RunDirectory(whole), 1))["time"])
    startup, working = first - began, time.time() - first
    print(f"uninterrupted: {rollouts} rollouts in {working:.0f} s after a start of {startup:.0f} s", flush=True)
    differ = done = 0
    for number in range(runs):
        directory, due = folder / f"killed{number}", kills // runs + (number < kills % runs)
        while due:
            early = rng.random() < SHARE_KILLED_WHILE_STARTING
            seconds = rng.uniform(0, startup) if early else rng.uniform(0, 1.6 * runs / kills) * working
            earlier = attempts(RunDirectory(directory))
            process = start(directory, rollouts)
            if not early:
                wait_for_events(process, RunDirectory(directory), len(earlier) + 1)
            if kill_at(process, seconds):
                due, done = due - 1, done + 1
                print(f"kill {done}: run {number} after {seconds:.1f} s, {where(directory)}", flush=True)
            else:  # complete before all its kills were due: the others hit a new run
                differ += not is_equal(whole, directory)
        finish(directory, rollouts)
        differ += not is_equal(whole, directory)
    print(f"{done} kills in {runs} runs, {differ} comparisons failed")
    return 1 if differ else 0


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
    finish(directory, rollouts)
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
        code = soak_kills(
            folder, kills=options.kills, runs=options.runs, rollouts=options.rollouts or 12, seed=options.seed
        )
    if code == 0 and options.folder is None:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
