"""Runs the hostile set in one tier with canaries; a plain program too: `python -m tests.sandbox.hostile_run sealed`.

Prints one JSON line: the tier, how many programs ran, and what went wrong (nothing, it is hoped).
"""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sandbox import EnvironmentFault, Limits, Opened, Sandbox, Stepped
from tests.sandbox.hostile import PROGRAMS, Hostile
from tests.sandbox.programs import GUESS

LIMITS = Limits(step_soft_s=0.25, step_hard_s=0.8, load_s=2.0, memory_bytes=256 * 1024 * 1024)
SECRET = "CANARY-SECRET-" + secrets.token_hex(8)


class Canaries:
    """A secret file, a writable folder, a secret in the environment, three listeners, a victim process."""

    def __init__(self) -> None:
        os.environ["SPADEWORK_CANARY"] = SECRET
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o777)
        self.secret_file = Path(self.folder.name, "secret")
        self.secret_file.write_text(SECRET)
        self.writable = Path(self.folder.name, "writable")
        self.writable.mkdir()
        self.writable.chmod(0o777)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract_name = f"canary-{secrets.token_hex(8)}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.abstract_name)
        self.abstract.listen()
        for listener in (self.tcp, self.udp, self.abstract):
            listener.setblocking(False)
        self.victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
        self.mode = self.secret_file.stat()

    def action(self) -> str:
        """What a program is told, to aim well."""
        return json.dumps(
            {
                "secret_file": str(self.secret_file),
                "folder": str(self.writable),
                "tcp": self.tcp.getsockname()[1],
                "udp": self.udp.getsockname()[1],
                "abstract": self.abstract_name,
                "victim": self.victim.pid,
                "host": os.getpid(),
            }
        )

    def touched(self) -> list[str]:
        """Names of the canaries something reached."""
        found = []
        if list(self.writable.iterdir()):
            found.append("writable folder")
        now = self.secret_file.stat()
        if self.secret_file.read_text() != SECRET or (now.st_mode, now.st_uid) != (self.mode.st_mode, self.mode.st_uid):
            found.append("secret file")
        for name in ("tcp", "abstract"):
            try:
                getattr(self, name).accept()
                found.append(name)
            except BlockingIOError:
                pass
        try:
            self.udp.recv(10)
            found.append("udp")
        except BlockingIOError:
            pass
        state = Path(f"/proc/{self.victim.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if self.victim.poll() is not None or state not in "SRD":
            found.append("victim")
        return found

    def close(self) -> None:
        """Take them down."""
        assert self.victim.stdin is not None
        self.victim.stdin.close()
        self.victim.wait()
        for listener in (self.tcp, self.udp, self.abstract):
            listener.close()
        self.folder.cleanup()


class Witness:
    """A second program of another version that must stay correct whatever the first does."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.handle = box.load(GUESS)

    def complaint(self) -> str:
        """Empty when it still answers right."""
        seed = secrets.randbelow(10**9)
        (opened,) = self.box.reset_many([(self.handle, seed, 5)])
        if not isinstance(opened, Opened):
            return f"the second program failed: {opened}"
        number = random.Random(seed).randint(1, 1000)
        (answer,) = self.box.step_many([(opened.episode, f"\\boxed{{{number}}}")])
        self.box.end_many([opened.episode])
        if not isinstance(answer, Stepped) or (answer.observation, answer.reward) != ("Correct.", 1.0):
            return f"the second program answered {answer}"
        return ""


def outcome_of(box: Sandbox, program: Hostile, action: str) -> str:
    """`denied`, `through …`, or the kind of the fault."""
    try:
        handle = box.load(program.source())
    except EnvironmentFault as fault:
        return f"{fault.kind} at {fault.stage}: {fault.message}"
    try:
        (opened,) = box.reset_many([(handle, 1, 25)])
        if isinstance(opened, EnvironmentFault):
            return f"{opened.kind} at {opened.stage}: {opened.message}"
        (answer,) = box.step_many([(opened.episode, action)])
    finally:
        handle.close()
    if isinstance(answer, EnvironmentFault):
        assert all(character.isprintable() or character in "\n\t" for character in answer.message), answer.message
        return f"{answer.kind} at {answer.stage}: {answer.message}"
    return answer.observation


def run_one(box: Sandbox, witness: Witness, canaries: Canaries, program: Hostile) -> list[str]:
    """What went wrong with one program; empty when all is as expected."""
    started = time.monotonic()
    outcome = outcome_of(box, program, canaries.action())
    elapsed = time.monotonic() - started
    wrong = []
    if outcome.split()[0].rstrip(":") not in program.expects:
        wrong.append(f"{program.name}: got {outcome[:300]!r}, expected one of {program.expects}")
    if elapsed > 5.0:
        wrong.append(f"{program.name}: took {elapsed:.1f} s")
    wrong += [f"{program.name}: reached {canary}" for canary in canaries.touched()]
    complaint = witness.complaint()
    if complaint:
        wrong.append(f"{program.name}: {complaint}")
    return wrong


def main() -> int:
    """Run all programs in the tier of the command line."""
    canaries = Canaries()
    wrong: list[str] = []
    with Sandbox(LIMITS, sys.argv[1], only=True) as box:
        witness = Witness(box)
        for program in PROGRAMS:
            wrong += run_one(box, witness, canaries, program)
        result: dict[str, Any] = {"tier": box.tier, "layers": box.layers, "programs": len(PROGRAMS), "wrong": wrong}
    canaries.close()
    print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
