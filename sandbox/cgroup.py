"""A control group around a zygote and its workers, where the host may make one: a bound on what all of them use together.

The limits of each worker (rlimits) hold everywhere; many workers at once can still exceed the machine. With a group the
kernel then ends one of them instead of something else on the machine. Both kinds of hierarchy are tried: the unified one
where the controllers are handed down to us, and the older one with a tree for each controller.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "spadework-sandbox"
_REMOVE_S = 1.0
_numbers = itertools.count(1)


@dataclass
class ControlGroup:
    """Folders that are the group, one for each hierarchy, and what they bound in words."""

    folders: list[Path] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    _told: int = 0

    @property
    def layer(self) -> str:
        """For the list of layers: what is bounded."""
        return f"cgroup {' and '.join(self.bounds)}"

    def add(self, pid: int) -> bool:
        """Put a process, and so all it will start, into the group; whether every folder took it."""
        try:
            for folder in self.folders:
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError:
            return False
        return True

    def take_kill(self) -> bool:
        """Whether the kernel has ended a process of the group for lack of memory since it was last asked; one at a time."""
        kills = sum(_kills_in(folder) for folder in self.folders)
        if kills <= self._told:
            return False
        self._told += 1
        return True

    def remove(self) -> None:
        """Remove the group once its processes are gone; one that the kernel still holds is left for the next start."""
        ends_at = time.monotonic() + _REMOVE_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > ends_at:
                        break
                    time.sleep(0.005)
                else:
                    break


def _kills_in(folder: Path) -> int:
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in (folder / name).read_text(encoding="ascii").splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def create(memory_bytes: int, processes: int, root: Path = ROOT, own: str | None = None) -> ControlGroup | None:
    """A new group of at most `memory_bytes` bytes of memory and `processes` processes; None where none can be made.

    `own` is the text of `/proc/self/cgroup`. Groups left by hosts that died are removed on the way.
    """
    try:
        lines = (Path("/proc/self/cgroup").read_text(encoding="utf-8") if own is None else own).splitlines()
    except OSError:
        return None
    name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
    group = ControlGroup()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bounds = _unified(root, path, name, memory_bytes, processes, group)
        elif controllers in ("memory", "pids"):
            bounds = _single(root / controllers, path, name, controllers, memory_bytes, processes, group)
        else:
            continue
        group.bounds += bounds
    if group.bounds:
        return group
    group.remove()
    return None


def _parent(tree: Path, path: str) -> Path:
    """Our own group's folder; inside a container its path may not exist, and the mounted root is it."""
    own = tree / path.lstrip("/")
    return own if own.is_dir() else tree


def _unified(root: Path, path: str, name: str, memory_bytes: int, processes: int, group: ControlGroup) -> list[str]:
    tree = root / "unified" if (root / "unified").is_dir() else root
    parent = _parent(tree, path)
    bounds: list[str] = []
    if not (parent / "cgroup.subtree_control").is_file():
        return bounds
    with contextlib.suppress(OSError):
        handed_down = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
        if not {"memory", "pids"} & set(handed_down):
            return bounds
        folder = _make(parent, name, group)
        if "memory" in handed_down:
            (folder / "memory.max").write_text(str(memory_bytes), encoding="ascii")
            bounds.append(_memory_words(memory_bytes))
        if "pids" in handed_down:
            (folder / "pids.max").write_text(str(processes), encoding="ascii")
            bounds.append(f"{processes} processes")
    return bounds


def _single(
    tree: Path, path: str, name: str, controller: str, memory_bytes: int, processes: int, group: ControlGroup
) -> list[str]:
    if not tree.is_dir():
        return []
    file, value = ("memory.limit_in_bytes", memory_bytes) if controller == "memory" else ("pids.max", processes)
    with contextlib.suppress(OSError):
        folder = _make(_parent(tree, path), name, group)
        (folder / file).write_text(str(value), encoding="ascii")
        return [_memory_words(memory_bytes) if controller == "memory" else f"{processes} processes"]
    return []


def _make(parent: Path, name: str, group: ControlGroup) -> Path:
    _remove_left_behind(parent)
    folder = parent / name
    folder.mkdir()
    group.folders.append(folder)
    return folder


def _remove_left_behind(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}-*"):
        pid = folder.name.split("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _memory_words(memory_bytes: int) -> str:
    return f"{memory_bytes // 2**20} MiB"
