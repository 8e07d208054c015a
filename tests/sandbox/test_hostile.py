"""Every hostile program, in every tier this machine has, gets nothing but its expected answer, and touches nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxUnavailable
from sandbox.isolation.tiers import TIERS
from tests.sandbox.hostile import PROGRAMS, Hostile
from tests.sandbox.hostile_run import LIMITS, Canaries, Witness, run_one

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")


@pytest.fixture(scope="module")
def canaries() -> Iterator[Canaries]:
    made = Canaries()
    yield made
    made.close()


@pytest.fixture(scope="module", params=TIERS)
def arena(request: pytest.FixtureRequest) -> Iterator[tuple[Sandbox, Witness]]:
    try:
        box = Sandbox(LIMITS, request.param, only=True)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    with box:
        assert box.tier == request.param
        yield box, Witness(box)


def test_the_set_is_large_and_its_names_are_unique() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))
    assert len(names) >= 50


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_a_hostile_program_gets_nothing(arena: tuple[Sandbox, Witness], canaries: Canaries, program: Hostile) -> None:
    assert run_one(*arena, canaries, program) == []


def _python_for_anybody() -> str:
    """An interpreter that a user without a home can start, of a version we support."""
    for candidate in (sys.executable, SYSTEM_PYTHON):
        if candidate is None:
            continue
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", candidate, "-c"]
        again = (
            "import subprocess as s, sys; sys.exit(sys.version_info < (3, 11) or s.call([sys.executable, '-c', '']))"
        )
        answer = subprocess.run([*command, again], capture_output=True)
        if answer.returncode == 0:
            return candidate
    pytest.skip("no interpreter of 3.11 or later that another user may start")


ELSEWHERE = {
    "another user": (["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], ("namespaces", "sealed")),
    "root without capabilities": (["setpriv", "--bounding-set", "-all", "--inh-caps=-all", "--no-new-privs"], ("landlock",)),
    "no namespaces allowed": (
        ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -all "
         '--inh-caps=-all --no-new-privs "$@"', "sh"],
        ("landlock",),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to become others"
)
@pytest.mark.parametrize("place", ELSEWHERE)
def test_the_set_gets_nothing_where_less_is_allowed(place: str, tmp_path: Path) -> None:
    wrapper, tiers = ELSEWHERE[place]
    python = _python_for_anybody()
    shutil.copytree(ROOT / "sandbox", tmp_path / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests/sandbox", tmp_path / "tests/sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    ran = 0
    for tier in tiers:
        answer = subprocess.run(
            [*wrapper, python, "-m", "tests.sandbox.hostile_run", tier],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        if "SandboxUnavailable" in answer.stderr:
            continue
        assert answer.stdout, answer.stderr
        result = json.loads(answer.stdout)
        assert (result["tier"], result["wrong"]) == (tier, [])
        ran += 1
    assert ran > 0, f"no tier at all for {place}"
