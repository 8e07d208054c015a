#!/usr/bin/env python3
"""Makes the virtual environment of this checkout: `python3 tools/bootstrap.py [--test] [--browser]`.

Standard library only, and written so that even Python 3.6 can parse it: somebody with an old Python has to get a sentence,
not a syntax error. Idempotent: a finished environment is recognised by a marker file that is written last, and then
neither pip nor the network is touched.

Settings: SPADEWORK_VENV (default .venv), SPADEWORK_TORCH_INDEX (an additional package index, for the CPU build of torch: its
address is shown on PyTorch's own install page), SPADEWORK_CHROMIUM (the browser of the tests).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

OLDEST = (3, 11)
NEWEST_TESTED = (3, 13)
ROOT = Path(__file__).resolve().parent.parent
MARKER = ".spadework-complete"
PIP = "pip==26.3"  # resumes a download that broke off in the middle of a file
TRIES = 3
FIRST_PAUSE_S = 3
NEEDED_BYTES = 1500 * 1000 * 1000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STARTED = time.time()

NETWORK_SIGNS = (
    "NewConnectionError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "ConnectTimeoutError",
    "Connection refused",
    "ProxyError",
    "ReadTimeoutError",
    "Connection broken",
    "Failed to establish a new connection",
)


class Stop(Exception):
    """The environment cannot be made; the text is one line with what to do."""


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        check_version(sys.version_info, try_newer)
        options = parse(arguments)
        environment = Path(os.environ.get("SPADEWORK_VENV") or str(ROOT / ".venv"))
        ensure_environment(environment, options.test)
        if options.browser:
            ensure_browser()
    except Stop as problem:
        sys.stderr.write("spadework: {}\n".format(problem))
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("spadework: interrupted; the same command goes on from here\n")
        return 130
    return 0


def parse(arguments: Optional[List[str]]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Makes the virtual environment of this checkout.")
    parser.add_argument("--test", action="store_true", help="with everything `make check` and `make test` need")
    parser.add_argument(
        "--browser", action="store_true", help="make sure that a Chromium is there for the browser tests"
    )
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """One progress line with the time since the start."""
    sys.stdout.write("spadework | {:6.1f} s  {}\n".format(time.time() - STARTED, text))
    sys.stdout.flush()


# Python --------------------------------------------------------------------------------------------------------------


def check_version(version: Sequence[Any], otherwise: Optional[Callable[[], None]] = None) -> None:
    """Refuse a Python that is too old, after `otherwise` had its chance to become another one."""
    if tuple(version[:2]) >= OLDEST:
        if tuple(version[:2]) > NEWEST_TESTED:
            say(
                "Python {}.{} is newer than what Spadework was tested with ({}.{})".format(*version[:2], *NEWEST_TESTED)
            )
        return
    if otherwise is not None:
        otherwise()
    raise Stop(
        "this is Python {}.{}, Spadework needs {}.{} or newer: install one (Debian, Ubuntu: apt install python3.11 python3.11-venv) "
        "and run `make PYTHON=python3.11 …`".format(*version[:2], *OLDEST)
    )


def try_newer() -> None:
    """Become a newer Python if PATH has one; returns when it has none."""
    for minor in range(NEWEST_TESTED[1], OLDEST[1] - 1, -1):
        program = shutil.which("python3.{}".format(minor))
        if program is None:
            continue
        probe = "import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, {}))".format(minor)
        # A version manager's stand-in may exist without the Python behind it.
        if subprocess.call([program, "-c", probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            os.execv(program, [program, *sys.argv])  # noqa: S606  no shell is wanted here


# The virtual environment ---------------------------------------------------------------------------------------------


def ensure_environment(environment: Path, with_tests: bool) -> None:
    """Bring `environment` to the present requirements, doing as little as possible."""
    wanted = fingerprint(requirement_files(), sys.version_info)
    state = read_marker(environment)
    if state is not None and state.get("fingerprint") == wanted and (state.get("test") or not with_tests):
        return
    if state is None or state.get("python") != list(sys.version_info[:2]):
        if environment.exists():
            refuse_foreign(environment)
            say("{} is {}: making it anew".format(environment, "half-made" if state is None else "of another Python"))
        check_room(environment.parent)
        make_environment(environment)
    else:
        # Finished, same Python, other requirements: brought up to date in place, and half-made until that is done.
        (environment / MARKER).unlink()
        with_tests = with_tests or bool(state.get("test"))
    install(environment, with_tests)
    write_marker(environment, {"fingerprint": wanted, "python": list(sys.version_info[:2]), "test": with_tests})
    say("{} is complete".format(environment))


def install(environment: Path, with_tests: bool) -> None:
    """Install the requirement files into the environment."""
    python = environment / "bin" / "python"
    run_pip(python, ["install", "--quiet", PIP], "pip")
    torch_hint()
    say("installing packages (the first time this downloads several hundred megabytes)")
    arguments = ["install", "--resume-retries", "5"]
    for name in ("test.txt" if with_tests else "base.txt", "torch.txt"):
        arguments += ["--requirement", str(ROOT / "requirements" / name)]
    if os.environ.get("SPADEWORK_TORCH_INDEX"):
        arguments += ["--extra-index-url", os.environ["SPADEWORK_TORCH_INDEX"]]
    run_pip(python, arguments, "the packages")


def requirement_files() -> List[Path]:
    """Every file that decides what is installed."""
    return [ROOT / "requirements" / name for name in ("base.txt", "test.txt", "torch.txt")]


def fingerprint(files: List[Path], version: Sequence[Any]) -> str:
    """Changes when a requirement file, the Python version or the torch index does."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    digest.update("{}.{} {}".format(version[0], version[1], os.environ.get("SPADEWORK_TORCH_INDEX", "")).encode())
    return digest.hexdigest()


def read_marker(environment: Path) -> Optional[Dict[str, Any]]:
    """What the finished environment was made from; None for a missing or half-made one."""
    if not (environment / "bin" / "python").exists():  # also a link to a Python that is gone
        return None
    try:
        state = json.loads((environment / MARKER).read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def write_marker(environment: Path, state: Dict[str, Any]) -> None:
    """Declare the environment finished."""
    part = environment / (MARKER + ".part")
    part.write_text(json.dumps(state))
    part.rename(environment / MARKER)


def refuse_foreign(directory: Path) -> None:
    """Making it anew removes `directory`: only done to a virtual environment, or to what became of one."""
    if directory.is_dir() and ((directory / "pyvenv.cfg").exists() or not any(directory.iterdir())):
        return
    raise Stop("{} exists and is no virtual environment: remove it, or set SPADEWORK_VENV".format(directory))


def check_room(directory: Path) -> None:
    """Refuse to start a download that will not fit."""
    directory.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(str(directory)).free
    if free_bytes < NEEDED_BYTES:
        raise Stop(
            "only {:.1f} GB free on the disk of {}, the packages need {:.1f} GB: make room, or set SPADEWORK_VENV to a directory on "
            "another disk".format(free_bytes / 1e9, directory, NEEDED_BYTES / 1e9)
        )


def make_environment(environment: Path) -> None:
    """A fresh, empty virtual environment; what was there is removed."""
    say("making {} with Python {}".format(environment, sys.version.split()[0]))
    try:
        import ensurepip  # noqa: F401  Debian ships Python without it
    except ImportError:
        raise Stop(
            "this Python cannot make virtual environments (no ensurepip): install the package python{0}.{1}-venv "
            "(Debian, Ubuntu: apt install python{0}.{1}-venv) and run the same command again".format(
                *sys.version_info[:2]
            )
        ) from None
    code, output = captured([sys.executable, "-m", "venv", "--clear", str(environment)])
    if code != 0:
        raise Stop("python -m venv {} failed: {}".format(environment, last_line(output)))


def torch_hint() -> None:
    """Say where time and disk could be saved, on a machine without an NVIDIA GPU."""
    if (
        not os.environ.get("SPADEWORK_TORCH_INDEX")
        and not Path("/dev/nvidiactl").exists()
        and shutil.which("nvidia-smi") is None
    ):
        say(
            "no NVIDIA GPU seen: if this downloads a CUDA build of torch, set SPADEWORK_TORCH_INDEX to the CPU index address "
            "that PyTorch's own install page shows"
        )


# pip -----------------------------------------------------------------------------------------------------------------


def run_pip(python: Path, arguments: List[str], what: str) -> None:
    """Run pip, showing what it downloads; on failure again, which takes finished downloads from pip's cache."""
    command = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        *arguments,
        "--retries",
        "2",
        "--progress-bar",
        "off",
    ]
    output = []
    for attempt in range(1, TRIES + 1):
        output = stream(command)
        if output is None:
            return
        if not is_worth_retrying(output) or attempt == TRIES:
            break
        pause_s = FIRST_PAUSE_S * 2 ** (attempt - 1)
        say("{} failed ({}); trying again in {} s".format(what, problem_of(output), pause_s))
        time.sleep(pause_s)
    raise Stop(explain(what, output))


def stream(command: List[str]) -> Optional[List[str]]:
    """Run `command`, show its milestones; None when it succeeded, else its lines."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if re.match(r"\s*(Downloading \S+ \(\d|Resuming|Installing collected|Successfully installed)", line):
                say(shortened(line.strip()))
    finally:
        if process.poll() is None and sys.exc_info()[0] is not None:
            process.terminate()
        code = process.wait()
    return None if code == 0 else lines


def shortened(text: str, limit: int = 110) -> str:
    """`text` on one line of a terminal."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_worth_retrying(lines: List[str]) -> bool:
    """Whether the same command may succeed in a moment."""
    return is_network_trouble(lines) or any(
        re.search(r"\b5\d\d (Server|Service|Bad Gateway)|IncompleteRead|hash", line) for line in lines
    )


def is_network_trouble(lines: List[str]) -> bool:
    """Whether pip's words speak of a missing or broken network."""
    return any(sign in line for line in lines for sign in NETWORK_SIGNS)


def problem_of(lines: List[str]) -> str:
    """The line that says what went wrong."""
    errors = [line for line in lines if line.startswith("ERROR")]
    return shortened((errors or lines or ["no output"])[-1])


def explain(what: str, lines: List[str]) -> str:
    """One line on why pip failed and what to do."""
    text = "\n".join(lines)
    if "No space left on device" in text:
        return "the disk is full: make room and run the same command again (finished downloads are kept)"
    if is_network_trouble(lines):
        return (
            "no network: {} must be downloaded the first time. Connect this machine (or set pip's proxy or index) and run the "
            "same command again; finished downloads are kept".format(what)
        )
    for line in lines:
        if "No matching distribution found" in line:
            return "{} cannot be installed: {} (this platform or Python may have no such package)".format(
                what, shortened(line)
            )
    return "{} cannot be installed: {}".format(what, problem_of(lines))


def captured(command: List[str]) -> Tuple[int, str]:
    """Exit code and output of a command that gets no input."""
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    return result.returncode, result.stdout


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


# The browser of the tests --------------------------------------------------------------------------------------------


def find_browser() -> Optional[str]:
    """A Chromium's path, or None."""
    chosen = os.environ.get("SPADEWORK_CHROMIUM")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise Stop("SPADEWORK_CHROMIUM is {}, which is no program".format(chosen))
        return chosen
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def ensure_browser() -> None:
    """Bring a Chromium from the distribution's packages when that needs no question."""
    if find_browser() is not None:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
    hint = "no Chromium for the browser tests: run `sudo {}` (or set SPADEWORK_CHROMIUM), or run `make test BROWSER=no`".format(
        " ".join(install)
    )
    prefix = root_prefix()
    if shutil.which("apt-get") is None or prefix is None:
        raise Stop(hint)
    settings = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for words in (["apt-get", "update"], install):
        say("running " + " ".join(words))
        code, output = captured(prefix + settings + words)
        if code != 0:
            raise Stop("{} failed ({}); {}".format(" ".join(words), last_line(output), hint))
    if find_browser() is None:
        raise Stop(hint)


def root_prefix() -> Optional[List[str]]:
    """What to put before a command to run it as root without a question; None when that is not possible."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.call([sudo, "-n", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return [sudo, "-n"]
    return None


if __name__ == "__main__":
    sys.exit(main())
