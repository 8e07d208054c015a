"""The filter of both architectures, interpreted here; and the choice of the tier."""

from __future__ import annotations

import errno
import struct

import pytest

from sandbox import Limits, Sandbox, SandboxUnavailable
from sandbox.inside import self_test
from sandbox.isolation import landlock, seccomp, tiers
from sandbox.isolation.syscalls import ARCHITECTURES, Architecture
from sandbox.self_check import check

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
BOTH = [ARCHITECTURES["x86_64"], ARCHITECTURES["aarch64"]]


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel's machine would answer: only the instructions the filter uses."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, audit, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", program))
    place, accumulator = 0, 0
    while True:
        operation, yes, no, value = code[place]
        place += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            place += yes if test else no


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_the_filter_allows_its_list_and_nothing_else(machine: Architecture) -> None:
    program = seccomp.worker_filter(machine)
    special = {"mmap", "mprotect", "prlimit64", "sched_getaffinity", *seccomp.CLOCKS}
    for number in range(600):
        names = [name for name, its in machine.numbers.items() if its == number]
        answer = verdict(program, machine.audit, number)
        if any(name in seccomp.ALLOWED or name in special for name in names):
            assert answer == ALLOW, names
        elif any(name in seccomp.FILES for name in names):
            assert answer == ERRNO | errno.EACCES, names
        elif "clone3" in names:
            assert answer == ERRNO | errno.ENOSYS
        else:
            assert answer == ERRNO | errno.EPERM, (number, names)


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_other_architectures_kill(machine: Architecture) -> None:
    program = seccomp.worker_filter(machine)
    for audit in (0x40000003, 0xC000003E, 0xC00000B7, 0x40000028, 0):
        if audit != machine.audit:
            assert verdict(program, audit, machine.numbers["read"]) == KILL


def test_the_x32_numbers_kill() -> None:
    machine = ARCHITECTURES["x86_64"]
    assert verdict(seccomp.worker_filter(machine), machine.audit, 0x40000000) == KILL
    assert verdict(seccomp.worker_filter(machine), machine.audit, 0xFFFFFFFF) == KILL


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_executable_memory_and_new_limits_are_refused(machine: Architecture) -> None:
    program = seccomp.worker_filter(machine)
    for name in ("mmap", "mprotect"):
        for protection, answer in ((0, ALLOW), (3, ALLOW), (4, ERRNO | 1), (7, ERRNO | 1), (5 + (1 << 32), ERRNO | 1)):
            assert verdict(program, machine.audit, machine.numbers[name], 0, 4096, protection) == answer
    for pointer, answer in ((0, ALLOW), (0x1000, ERRNO | 1), (1 << 32, ERRNO | 1)):
        assert verdict(program, machine.audit, machine.numbers["prlimit64"], 0, 7, pointer) == answer


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_nothing_is_told_of_another_process(machine: Architecture) -> None:
    for program in (seccomp.worker_filter(machine), seccomp.zygote_filter(machine)):
        for name in ("clock_gettime", "clock_getres", "clock_nanosleep"):
            for clock, answer in (
                (1, ALLOW),
                (11, ALLOW),
                ((~4242 << 3 | 2) & 0xFFFFFFFF, ERRNO | 1),
                (2**64 - 6, ERRNO | 1),
            ):
                assert verdict(program, machine.audit, machine.numbers[name], clock) == answer
        assert verdict(program, machine.audit, machine.numbers["sched_getaffinity"], 0) == ALLOW
        assert verdict(program, machine.audit, machine.numbers["sched_getaffinity"], 4242) == ERRNO | 1
    program = seccomp.worker_filter(machine)
    assert verdict(program, machine.audit, machine.numbers["prlimit64"], 4242, 7, 0) == ERRNO | 1


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_a_zygote_may_fork_but_open_nothing_and_enter_no_namespace(machine: Architecture) -> None:
    program, numbers = seccomp.zygote_filter(machine), machine.numbers
    for name in ("open", "openat", "execve", "statx", "readlink"):
        if name in numbers:
            assert verdict(program, machine.audit, numbers[name]) == ERRNO | errno.EACCES, name
    for name in ("socket", "socketpair", "landlock_restrict_self"):
        assert verdict(program, machine.audit, numbers[name]) == ERRNO | errno.EPERM, name
    for name in ("recvmsg", "kill", "wait4", "fcntl"):
        assert verdict(program, machine.audit, numbers[name]) == ALLOW, name
    for flags, answer in (
        (17, ALLOW),
        (17 | 0x10000000, ERRNO | 1),
        (17 | 0x20000000, ERRNO | 1),
        (17 | 0x80, ERRNO | 1),
    ):
        assert verdict(program, machine.audit, numbers["clone"], flags) == answer
    for option, answer in ((1, ALLOW), (38, ALLOW), (22, ALLOW), (4, ERRNO | 1), (24, ERRNO | 1)):
        assert verdict(program, machine.audit, numbers["prctl"], option) == answer
    assert verdict(program, machine.audit, numbers["mmap"], 0, 4096, 7) == ERRNO | 1
    assert verdict(program, machine.audit ^ 1, numbers["read"]) == KILL


@pytest.mark.parametrize("machine", BOTH, ids=lambda machine: machine.name)
def test_no_two_names_share_a_number(machine: Architecture) -> None:
    assert len(set(machine.numbers.values())) == len(machine.numbers)


def test_landlock_handles_all_that_each_abi_can() -> None:
    assert landlock.ruleset(1) == struct.pack("<Q", 0x1FFF)
    assert landlock.ruleset(2) == struct.pack("<Q", 0x3FFF)
    assert landlock.ruleset(3) == struct.pack("<Q", 0x7FFF)
    assert landlock.ruleset(4) == struct.pack("<2Q", 0x7FFF, 3)
    assert landlock.ruleset(5) == struct.pack("<2Q", 0xFFFF, 3)
    assert landlock.ruleset(7) == struct.pack("<3Q", 0xFFFF, 3, 3)


def test_a_machine_without_tables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(seccomp.IsolationError, match="no seccomp tables for riscv64"):
        seccomp.this_architecture()


def test_the_self_test_sees_open_doors_where_there_are_walls_missing() -> None:
    """Run here, without a sandbox, it must not say `denied` where this process may."""
    assert self_test._attempt(lambda: None) == "allowed"
    with open("/etc/passwd") as readable:
        assert self_test._attempt(readable.read) == "allowed"

    def refuse(code: int) -> None:
        raise OSError(code, "x")

    assert self_test._attempt(lambda: refuse(errno.EACCES)) == "denied"
    # A missing file or a lack of descriptors is no proof of a wall.
    assert self_test._attempt(lambda: refuse(errno.ENOENT)) == "answered ENOENT"
    assert self_test._attempt(lambda: refuse(errno.EMFILE)) == "answered EMFILE"


def test_a_worker_whose_self_test_shows_a_hole_gets_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    # A filter that lets stat through: the kernel then answers, the self-test sees it, and every tier is refused.
    hole = "import sandbox.isolation.seccomp as s;s.ALLOWED += ('stat', 'newfstatat');s.FILES = ();"
    from sandbox import zygote_link

    bootstrap = zygote_link._BOOTSTRAP
    monkeypatch.setattr(
        zygote_link, "_BOOTSTRAP", bootstrap.replace("from sandbox.inside.zygote", hole + "from sandbox.inside.zygote")
    )
    with pytest.raises(SandboxUnavailable, match=r"does not isolate: .*see a path: allowed"):
        Sandbox(Limits(), "sealed", only=True)


def test_the_strongest_tier_is_chosen_and_a_minimum_is_kept() -> None:
    works, lines = check()
    assert works
    with Sandbox() as box:
        assert f"chosen      {box.tier}: the strongest tier that passed every question of its self-test" in lines
        assert box.tier in tiers.TIERS
    with Sandbox(minimum_tier=box.tier) as demanded:
        assert demanded.tier == box.tier
    with Sandbox(minimum_tier="sealed", only=True) as sealed:
        assert sealed.tier == "sealed"
        assert [layer for layer in sealed.layers if not layer.startswith("cgroup")] == ["filtered zygote"]
