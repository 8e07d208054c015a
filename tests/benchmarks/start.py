"""How long a start takes: the first on an empty data directory, and the second. ``python -m tests.benchmarks.start``.

The environment must exist already; its making is timed by `tools/bootstrap.py` itself.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from webapp.stack.paths import REPOSITORY

SECOND_START_TARGET_S = 15.0
_STEP = re.compile(r"^spadework \|\s+([\d.]+) s  (.*)$")


def measure(home: Path) -> list[tuple[float, str]]:
    """Start the stack on `home`, stop it when it is ready; the steps with seconds since the start."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    command = [sys.executable, "-m", "webapp.stack", "up"]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**environment, "SPADEWORK_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    steps: list[tuple[float, str]] = []
    others: list[str] = []
    for line in process.stdout:
        if (step := _STEP.match(line)) is None:
            others.append(line)
            continue
        steps.append((float(step[1]), step[2]))
        if step[2].startswith("ready: "):
            process.send_signal(signal.SIGINT)
    if process.wait() != 0 or not any(words.startswith("ready: ") for _, words in steps):
        sys.exit("the stack did not start:\n" + "".join(others[-20:]))
    return steps


def main() -> None:
    """Measure both starts; exit code 1 when the second is slower than its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spadework-bench-") as directory:
        results = {name: measure(Path(directory) / "home") for name in ("first start", "second start")}
    for name, steps in results.items():
        print(name)
        for at_s, words in steps:
            print(f"  {at_s:6.1f} s  {words}")
    (ready_s,) = [at_s for at_s, words in results["second start"] if words.startswith("ready: ")]
    verdict = "ok" if ready_s <= SECOND_START_TARGET_S else "TOO SLOW"
    print(f"second start: {ready_s:.1f} s, target {SECOND_START_TARGET_S:.0f} s: {verdict}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    sys.exit(0 if verdict == "ok" else 1)


if __name__ == "__main__":
    main()
