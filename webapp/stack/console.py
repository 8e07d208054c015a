"""What the person in front of the terminal sees, and the log files: one prefix per process, nothing that controls a terminal."""

import io
import os
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

OWN_NAME = "spadework"
_NAME_WIDTH = len(OWN_NAME)
_COLOURS = {OWN_NAME: "1", "database": "34", "broker": "35", "web": "32", "gpu": "33", "default": "36"}
_OTHER_COLOUR = "90"
_LOG_LIMIT_BYTES = 10_000_000
_TAIL_LINES = 30
# Log lines may quote what a model wrote: escape sequences, cursor movement and bidirectional overrides stay text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Console:
    """Writes lines to the terminal and to ``<logs>/<name>.log``; keeps the last lines of each process for error texts."""

    def __init__(self, logs: Path, *, output: TextIO | None = None, quiet: bool = False) -> None:
        """`quiet`: process lines go to the files only (nobody watches a detached stack)."""
        self._logs = logs
        self._output = output if output is not None else sys.stdout
        if isinstance(self._output, io.TextIOWrapper):
            self._output.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character
        self._quiet = quiet
        self._colour = self._output.isatty() and "NO_COLOR" not in os.environ
        self._tails: dict[str, deque[str]] = {}
        self._files: dict[str, TextIO] = {}
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """A line of the supervisor itself, with the time since the start."""
        elapsed_s = time.monotonic() - self._started
        self._show(OWN_NAME, f"{elapsed_s:6.1f} s  {text}", always=True)

    def plain(self, text: str) -> None:
        """Lines for a person to act on, without prefix."""
        for line in text.splitlines():
            self._write(line)

    def line(self, name: str, text: str) -> None:
        """One line that process `name` wrote."""
        self._show(name, text, always=False)

    def tail(self, name: str) -> str:
        """The last lines of process `name`."""
        return "\n".join(self._tails.get(name, ()))

    def close(self) -> None:
        """Close the log files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _show(self, name: str, text: str, *, always: bool) -> None:
        clean = visible(text)
        self._tails.setdefault(name, deque(maxlen=_TAIL_LINES)).append(clean)
        self._log(name, clean)
        if always or not self._quiet:
            prefix = f"{name:<{_NAME_WIDTH}} |"
            if self._colour:
                prefix = f"\x1b[{_COLOURS.get(name, _OTHER_COLOUR)}m{prefix}\x1b[0m"
            self._write(f"{prefix} {clean}")

    def _write(self, line: str) -> None:
        try:
            self._output.write(line + "\n")
            self._output.flush()
        except BrokenPipeError:
            self._output = Path(os.devnull).open("w")  # noqa: SIM115  the reader went away, the stack goes on

    def _log(self, name: str, text: str) -> None:
        path = self._logs / f"{name}.log"
        try:
            file = self._files.get(name)
            if file is None or file.tell() > _LOG_LIMIT_BYTES:
                if file is not None:
                    file.close()
                    path.replace(path.with_suffix(".log.1"))
                file = self._files[name] = path.open("a", encoding="utf-8", buffering=1)
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
        except OSError as error:
            # A full disk must not take the stack down: what is said on the terminal still helps.
            self._write(f"cannot write {path}: {error.strerror}")


def visible(text: str) -> str:
    """`text` with every control character written as an escape, so that it can only be read."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
