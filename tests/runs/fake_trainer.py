"""Speaks the trainer's side of the run directory, scripted by the `description` of its settings (JSON). For fast tests.

Keys: rollouts, rollout_s, deaf (ignore SIGTERM and commands), children (start processes, one in its own session), exit (code after the
first rollout), say (last line on stderr), fail (owner; reports run_state failed first), flood (episodes in every rollout).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runs.eventwriter import EventWriter
from trainer.rundir import RunDirectory

POLL_S = 0.02


class Stopped(Exception):
    pass


class FakeTrainer:
    def __init__(self, directory: RunDirectory, script: dict[str, Any]) -> None:
        self.directory = directory
        self.script = script
        numbers = [int(path.name) for path in directory.attempts.iterdir()] if directory.attempts.exists() else []
        self.writer = EventWriter(directory.root, attempt=max(numbers, default=0) + 1)
        self.seen = 0
        self.paused = False
        self.stop = False

    def run(self) -> int:
        done = (
            [int(path.name) for path in self.directory.checkpoints.iterdir()]
            if self.directory.checkpoints.exists()
            else []
        )
        start = max(done, default=0)
        self.writer.rollout = None
        self.writer.emit(
            "run_started", attempt=self.writer.attempt, start_rollout=start, total_rollouts=self.script["rollouts"],
            checkpoint=f"{start:06d}" if start else None, pid=os.getpid(), engine={"environment": sorted(os.environ)},
            versions={}, sandbox_tier="sealed",
        )  # fmt: skip
        self.writer.emit("run_state", state="running")
        try:
            for number in range(start, self.script["rollouts"]):
                self.writer.rollouts(range(number, number + 1), plays=self.script.get("flood", 2))
                self.directory.checkpoint(number + 1).mkdir(parents=True)
                if "exit" in self.script:
                    return self.fall()
                self.wait(self.script.get("rollout_s", 0.05))
        except Stopped:
            self.writer.emit("run_state", state="stopped", reason="stopped on request")
            return 0
        self.writer.emit("run_state", state="completed")
        return 0

    def fall(self) -> int:
        if "fail" in self.script:
            self.writer.emit("run_state", state="failed", owner=self.script["fail"], reason=self.script["say"])
        print(self.script.get("say", ""), file=sys.stderr)
        return int(self.script["exit"])

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until or self.paused:
            if not self.script.get("deaf"):
                self.read_commands()
                if self.stop:
                    raise Stopped
            time.sleep(POLL_S)

    def read_commands(self) -> None:
        if not self.directory.control.exists():
            return
        lines = self.directory.control.read_text().splitlines()
        for line in lines[self.seen :]:
            command = json.loads(line)
            if command["attempt"] in (None, self.writer.attempt):
                self.obey(command)
        self.seen = len(lines)

    def obey(self, command: dict[str, Any]) -> None:
        action = command["action"]
        self.writer.emit(
            "command",
            command=command["id"],
            action=action,
            accepted=True,
            effective_rollout=(self.writer.rollout or 0) + 1,
        )
        if action in ("pause", "resume"):
            self.paused = action == "pause"
            self.writer.emit("run_state", state="paused" if self.paused else "running")
        elif action == "stop":
            self.stop = True


def make_fork(arguments: list[str]) -> int:
    """``fork SOURCE DEST --checkpoint NAME --prepare --config FILE``; `fork_say` refuses with that line, `fork_s` takes that long."""
    source, directory = RunDirectory(Path(arguments[1])), RunDirectory(Path(arguments[2]))
    options = {name: arguments[arguments.index(name) + 1] for name in ("--checkpoint", "--config")}
    assert "--prepare" in arguments
    config = json.loads(Path(options["--config"]).read_text())
    script = json.loads(config["description"])
    time.sleep(script.get("fork_s", 0))
    if "fork_say" in script:
        print(script["fork_say"], file=sys.stderr)
        return 2
    assert not directory.root.exists(), "a fork wants no directory there"
    assert (source.checkpoints / options["--checkpoint"]).is_dir()
    (directory.checkpoints / options["--checkpoint"]).mkdir(parents=True)
    directory.config.write_text(json.dumps({"config": config, "format_version": 1}))
    return 0


def main(arguments: list[str]) -> int:
    if arguments[0] == "fork":
        return make_fork(arguments)
    directory = RunDirectory(Path(arguments[1]))
    if arguments[0] == "run":
        config = json.loads(Path(arguments[3]).read_text())
        directory.config.write_text(json.dumps({"config": config, "format_version": 1}))
    script = json.loads(json.loads(directory.config.read_text())["config"]["description"])
    trainer = FakeTrainer(directory, script)

    def note(number: int, frame: FrameType | None) -> None:
        trainer.stop = not script.get("deaf")

    signal.signal(signal.SIGTERM, note)
    if script.get("children"):
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        for apart in (False, True):
            subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=apart)
    print("fake trainer at work", file=sys.stderr, flush=True)
    return trainer.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
