"""The control group around all workers: where the host may make one, it bounds them together; elsewhere nothing breaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import EnvironmentFault, Limits, Sandbox, Stepped, cgroup
from tests.sandbox.conftest import open_one, step_one
from tests.sandbox.programs import GUESS, environment

MIB = 2**20


def test_the_older_hierarchy_gets_a_folder_for_each_controller(tmp_path: Path) -> None:
    (tmp_path / "memory" / "jobs" / "a").mkdir(parents=True)
    (tmp_path / "pids").mkdir()
    group = cgroup.create(100 * MIB, 7, tmp_path, "8:pids:/\n4:memory:/jobs/a\n3:cpuset:/\n0::/\n")
    assert group is not None
    memory, pids = sorted(group.folders)
    assert memory.parent == tmp_path / "memory" / "jobs" / "a"
    assert (memory / "memory.limit_in_bytes").read_text() == str(100 * MIB)
    assert (pids / "pids.max").read_text() == "7"
    assert group.layer == "cgroup 7 processes and 100 MiB"


def test_the_unified_hierarchy_is_used_when_its_controllers_are_handed_down(tmp_path: Path) -> None:
    control = tmp_path / "service" / "cgroup.subtree_control"
    control.parent.mkdir()
    control.write_text("")
    assert cgroup.create(MIB, 7, tmp_path, "0::/service\n") is None
    assert list(control.parent.iterdir()) == [control]
    control.write_text("cpu memory pids\n")
    group = cgroup.create(64 * MIB, 9, tmp_path, "0::/service\n")
    assert group is not None
    (folder,) = group.folders
    assert ((folder / "memory.max").read_text(), (folder / "pids.max").read_text()) == (str(64 * MIB), "9")


def test_a_group_left_by_a_host_that_died_is_removed(tmp_path: Path) -> None:
    dead, alive = (tmp_path / "pids" / f"spadework-sandbox-{pid}-1" for pid in (999_999_999, os.getppid()))
    dead.mkdir(parents=True)
    alive.mkdir()
    assert cgroup.create(MIB, 7, tmp_path, "8:pids:/\n") is not None
    assert not dead.exists()
    assert alive.exists()


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_kills_for_lack_of_memory_are_told_once_each(tmp_path: Path, name: str) -> None:
    group = cgroup.ControlGroup([tmp_path])
    assert not group.take_kill()
    (tmp_path / name).write_text("oom 5\noom_kill 2\n")
    assert [group.take_kill() for _ in range(3)] == [True, True, False]


@pytest.fixture
def small_box() -> Iterator[Sandbox]:
    """A sandbox whose workers together get 220 MiB, while each alone might take more."""
    with Sandbox(Limits(total_memory_bytes=220 * MIB, step_soft_s=20, step_hard_s=25)) as box:
        if not any("MiB" in layer for layer in box.layers):
            pytest.skip("this process may not make a memory control group here")
        yield box


def test_the_program_that_reaches_the_common_limit_is_at_fault_and_the_others_go_on(small_box: Sandbox) -> None:
    bomb = environment(step="self.kept = bytearray(400 * 2**20)\nreturn 'kept', 0.0, False, False, {}")
    calm = open_one(small_box, GUESS)
    answer = step_one(small_box, open_one(small_box, bomb), "x")
    assert isinstance(answer, EnvironmentFault)
    assert answer.kind == "memory"
    assert "the workers together reached their memory limit" in str(answer)
    assert isinstance(step_one(small_box, calm, "\\boxed{1}"), Stepped)


def test_closing_removes_the_group(small_box: Sandbox) -> None:
    group = small_box._host._group
    assert group is not None
    assert all(folder.is_dir() for folder in group.folders)
    small_box.close()
    assert not any(folder.exists() for folder in group.folders)
