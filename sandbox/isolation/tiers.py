"""Which layers make which tier, and in which order a zygote puts them on."""

from __future__ import annotations

import os

from sandbox.isolation import landlock, namespaces, seccomp
from sandbox.isolation.kernel import IsolationError

# Strongest first. Every tier ends in the sealed core of each worker (rlimits, seccomp without files, self-test); the upper
# ones put walls behind it that hold should the filter have a hole.
TIERS: tuple[str, ...] = ("namespaces", "landlock", "sealed")
# No isolation at all: a process with rlimits. Never chosen; only an operator's override leads here (see `SandboxHost`).
UNSANDBOXED = "none"


def enter(tier: str) -> list[str]:
    """Put the tier's outer layers on this process; returns their names; raises `IsolationError`.

    In the `namespaces` tier only a child returns (as first process of its namespace); the caller stays as its launcher,
    waits, and leaves with it.
    """
    layers: list[str] = []
    if tier == UNSANDBOXED:
        return layers
    if tier == "namespaces":
        layers.append(namespaces.unshare())
        _continue_as_first_process()
        namespaces.empty_root()
        layers.append("empty root")
    elif tier == "landlock":
        landlock.abi()  # nothing to enter without it
    elif tier != "sealed":
        raise IsolationError(f"there is no tier {tier!r}")
    if os.geteuid() == 0 and tier != "sealed" and namespaces.become_nobody():
        layers.append("unused user id")
    if tier != "sealed":
        namespaces.drop_capabilities()
        layers.append("no capabilities")
    seccomp.no_new_privileges()
    if tier != "sealed":
        try:
            layers.append(f"Landlock {landlock.restrict()}")
        except IsolationError:
            if tier == "landlock":
                raise
    return layers


def _continue_as_first_process() -> None:
    child = os.fork()
    if child != 0:
        # Holding a descriptor here would keep the host's end from seeing the zygote's end-of-file.
        os.closerange(3, 256)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    seccomp.die_with_parent(0)
