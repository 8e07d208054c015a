"""The kernel itself holds a zygote to its filter; and a kernel without seccomp is refused, or overridden by a whole sentence."""

from __future__ import annotations

import os
import subprocess
import sys

_TRY_AS_ZYGOTE = """
import os, socket
from sandbox.isolation import seccomp
seccomp.no_new_privileges()
seccomp.install(seccomp.zygote_filter(seccomp.this_architecture()))
def attempt(action):
    try:
        action()
        return "allowed"
    except OSError as error:
        return "refused"
print(attempt(lambda: os.open("/etc/passwd", os.O_RDONLY)), attempt(lambda: socket.socket()),
      attempt(lambda: os.execv("/bin/true", ["true"])), attempt(lambda: os.kill(os.getpid(), 0)))
"""

# A kernel without seccomp, as the sandbox sees it: the call that installs a filter answers EINVAL.
_WITHOUT_SECCOMP = """
import logging, struct, sys
from sandbox.isolation import seccomp
logging.basicConfig(format="%(levelname)s %(message)s")
prctl = seccomp.this_architecture().numbers["prctl"]
program = [(0x20, 0, 0, 0), (0x15, 0, 3, prctl), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (6, 0, 0, 0x50016), (6, 0, 0, 0x7FFF0000)]
seccomp.no_new_privileges()
seccomp.install(b"".join(struct.pack("<HBBI", *instruction) for instruction in program))
from sandbox import Sandbox, SandboxUnavailable
SOURCE = '''
class OneEnv:
    def __init__(self, max_turns=2, **kwargs): pass
    def reset(self, seed=None): return "begin", {}
    def step(self, action): return action, 0.25, True, False, {}
'''
try:
    with Sandbox(minimum_tier=sys.argv[1]) as box:
        (opened,) = box.reset_many([(box.load(SOURCE), 1, 2)])
        print(box.tier, box.step_many([(opened.episode, "hello")])[0].reward)
except SandboxUnavailable as error:
    print("refused", error)
"""
_WORDS = "run-generated-code-without-isolation"


def _run(program: str, *arguments: str, override: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPADEWORK_SANDBOX_OVERRIDE": override}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)


def test_the_kernel_holds_a_zygote_to_its_filter() -> None:
    assert _run(_TRY_AS_ZYGOTE).stdout.split() == ["refused", "refused", "refused", "allowed"]


def test_without_seccomp_code_is_refused() -> None:
    for override in ("", "1"):
        done = _run(_WITHOUT_SECCOMP, "sealed", override=override)
        assert done.stdout.startswith("refused generated code is not run on this machine")


def test_only_the_whole_sentence_overrides_and_it_is_logged_loudly() -> None:
    done = _run(_WITHOUT_SECCOMP, "sealed", override=_WORDS)
    assert done.stdout == "none 0.25\n"
    assert "CRITICAL GENERATED CODE RUNS WITHOUT ISOLATION, because SPADEWORK_SANDBOX_OVERRIDE is set" in done.stderr


def test_a_demanded_tier_is_not_overridden() -> None:
    assert _run(_WITHOUT_SECCOMP, "landlock", override=_WORDS).stdout.startswith("refused")
