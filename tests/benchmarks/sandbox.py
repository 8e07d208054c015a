"""`make bench` part of the sandbox: measures, prints, and says which of the asked-for figures are reached.

Speed depends on what else the machine does: run it alone. Exit code 1 when a figure is missed.
"""

from __future__ import annotations

import os
import sys

from sandbox.bench.measure import run

# name -> (at least / at most, figure), from the issue "sandbox/: run generated environments safely and fast".
ASKED: dict[str, tuple[str, float]] = {
    "trivial batched 32, share of in process": ("at least", 0.05),
    "realistic batched 32, share of in process": ("at least", 0.50),
    "realistic unbatched, share of in process": ("at least", 0.20),
    "realistic 16 workers x 16, share of in process": ("at least", 0.25),
    "fork without numpy, ms": ("at most", 5.0),
    "fork with numpy, ms": ("at most", 8.0),
    "worker private memory, MiB": ("at most", 4.0),
    "recovery of 32 episodes, ms": ("at most", 200.0),
    "share lost beside a hung environment": ("at most", 0.05),
}


def main() -> int:
    """Run with the rounds per comparison given on the command line (default 9)."""
    missed = 0
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for name, value in run(int(sys.argv[1]) if len(sys.argv) > 1 else 9).items():
        word, figure = ASKED.get(name, ("", 0.0))
        reached = not word or (value >= figure if word == "at least" else value <= figure)
        missed += not reached
        asked = f"   asked: {word} {figure:g}{'' if reached else '   MISSED'}" if word else ""
        print(f"{name:<52}{value:>14,.3f}{asked}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
