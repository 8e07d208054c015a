"""Every process we start ends with us, whatever user it runs as, even when we are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack.processes import is_alive, is_running, root_only, wait_until
from webapp.stack.spawn import SAME_USER, Identity, IdentityKind, spawn

NOBODY_BY_NAMESPACE = Identity(IdentityKind.NAMESPACE, 65534, 65534)
NOBODY_REALLY = Identity(IdentityKind.DROP, 65534, 65534)
IDENTITIES = [
    pytest.param(SAME_USER, id="same user"),
    pytest.param(NOBODY_BY_NAMESPACE, id="user namespace"),
    pytest.param(NOBODY_REALLY, id="dropped", marks=root_only),
]

PARENT = """
import sys, time
from webapp.stack.spawn import Identity, IdentityKind, spawn
import signal
identity = Identity(IdentityKind(sys.argv[1]), 65534, 65534)
child = spawn(["/bin/sleep", "600"], identity=identity, death_signal=signal.SIGTERM)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_child_dies_when_its_parent_is_killed(identity: Identity) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, identity.kind.value], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    wait_until(lambda: is_running(child_pid, "/bin/sleep"), what="exec")
    assert is_alive(child_pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_alive(child_pid), within_s=30, what="the child's end")


@pytest.mark.parametrize("identity", IDENTITIES[1:])
def test_the_identity_is_not_root(identity: Identity) -> None:
    child = spawn(["/usr/bin/id", "-u"], identity=identity, stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=60)
    assert output.strip() == b"65534"


@root_only
def test_files_made_in_the_namespace_belong_to_the_caller(tmp_path: Path) -> None:
    child = spawn(["/usr/bin/touch", tmp_path / "made"], identity=NOBODY_BY_NAMESPACE)
    assert child.wait(60) == 0
    assert (tmp_path / "made").stat().st_uid == os.geteuid()


def test_a_missing_program_exits_125_and_says_so() -> None:
    child = spawn(["/no/such/program"], stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 125
    assert b"cannot start /no/such/program as same: " in output


def test_a_child_ignores_no_signal_that_we_ignore() -> None:
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        child = spawn(["/bin/sleep", "600"])
        wait_until(lambda: is_running(child.pid, "/bin/sleep"), what="exec")
    finally:
        signal.signal(signal.SIGTERM, old)
    child.terminate()
    assert child.wait(60) == -signal.SIGTERM
