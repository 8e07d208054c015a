"""The container profile lets the sandbox start and refuses what it should, tried by loading it without a container."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.isolation.seccomp import this_architecture

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "docker/sandbox/seccomp.json"
HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))


def _numbers() -> dict[str, int]:
    header = next((path for path in HEADERS if path.exists()), None)
    if header is None or this_architecture().name != "x86_64":
        pytest.skip("needs the kernel's list of x86-64 call numbers (linux-libc-dev)")
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", header.read_text())}


def _program() -> bytes:
    """The profile as BPF: load the number, compare with each listed call, else the default."""
    profile, numbers = json.loads(PROFILE.read_text()), _numbers()
    code = [(0x20, 0, 0, 0)]
    for rule in profile["syscalls"]:
        value = 0x7FFF0000 if rule["action"] == "SCMP_ACT_ALLOW" else 0x00050000 | rule["errnoRet"]
        for name in rule["names"]:
            if name in numbers:
                code += [(0x15, 0, 1, numbers[name]), (0x06, 0, 0, value)]
    code.append((0x06, 0, 0, 0x00050000 | profile["defaultErrnoRet"]))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _under_profile(work: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import runpy, sys\nfrom sandbox.isolation import seccomp\nseccomp.no_new_privileges()\n"
        f"seccomp.install({_program()!r})\n{work}"
    )
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=200)


def test_every_name_of_the_profile_is_a_system_call() -> None:
    numbers = _numbers()
    names = [name for rule in json.loads(PROFILE.read_text())["syscalls"] for name in rule["names"]]
    assert len(names) == len(set(names))
    # Newer calls may be missing from an old header, wrong names would be missing from all.
    assert {name for name in names if name not in numbers} <= {"futex_waitv", "epoll_pwait2", "landlock_add_rule"}


def test_the_sandbox_starts_under_the_profile() -> None:
    answer = _under_profile("sys.argv = ['sandbox', 'check']\nrunpy.run_module('sandbox', run_name='__main__')")
    assert answer.returncode == 0, answer.stderr
    assert "\nchosen      " in answer.stdout
    assert re.search(r"\nlandlock +yes", answer.stdout) or re.search(r"\nlandlock +no +.*Landlock", answer.stdout)


def test_the_profile_refuses_what_no_part_needs() -> None:
    refused = [
        "bpf",
        "io_uring_setup",
        "keyctl",
        "perf_event_open",
        "ptrace",
        "userfaultfd",
        "process_vm_readv",
        "init_module",
        "setns",
        "reboot",
    ]
    numbers = _numbers()
    calls = [numbers[name] for name in refused]
    work = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor number in " + repr(calls) + ":\n"
        "    value = libc.syscall(number, 0, 0, 0, 0, 0)\n    print(value, ctypes.get_errno())\n"
    )
    assert _under_profile(work).stdout.split("\n")[:-1] == ["-1 1"] * len(refused)
