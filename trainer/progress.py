"""What a person sees while a run goes on: a live line and a final table on a terminal, plain lines elsewhere; also log.txt."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from trainer.eventlog import EventLog, disk_error
from trainer.rundir import RunDirectory

_SHOWN = (
    "win_rate/unhinted",
    "win_rate/hinted",
    "regret/mean",
    "designer/reward_mean",
    "gates/pass_rate",
    "loss/total",
)


class _Screen:
    """Where text for a person goes. When nobody takes it any more (a closed pipe or terminal), it goes nowhere and the run goes on."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_gone = False

    def write(self, text: str) -> int:
        self._try(lambda: self._out.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._out.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)  # whether it is a terminal, its encoding: as the file says

    def _try(self, print_it: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            print_it()
        except OSError:
            self._is_gone = True
            with suppress(OSError), Path(os.devnull).open("wb") as nothing:
                os.dup2(nothing.fileno(), self._out.fileno())  # what its buffer still holds must not fail at exit


class Progress:
    """Follows the event log of an attempt."""

    def __init__(self, run: RunDirectory, *, out: TextIO | None = None) -> None:
        self._run = run
        screen = cast("TextIO", _Screen(out or sys.stdout))
        self._console = Console(file=screen, highlight=False, soft_wrap=True)
        self._bar: Bar | None = None
        self._task: Any = None
        self._history: list[tuple[int, Mapping[str, Any], float]] = []
        self._values: Mapping[str, Any] = {}
        self._eta_s: float | None = None
        self._log: TextIO | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), console=self._console
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._final_table()
        if self._log is not None:
            self._log.close()

    def listen(self, log: EventLog) -> None:
        """Follow this log from here on."""
        try:
            self._log = self._run.log.open("a", encoding="utf-8")
        except OSError as error:
            raise disk_error(error, "log.txt") from error
        log.listeners.append(self._on_event)

    def _on_event(self, kind: str, payload: Mapping[str, Any], rollout: int | None) -> None:
        match kind:
            case "run_started":
                self._say(
                    f"attempt {payload['attempt']}: rollout {payload['start_rollout']} of {payload['total_rollouts']}"
                )
                self._update(total=payload["total_rollouts"], completed=payload["start_rollout"])
            case "run_state":
                why = f": {payload['reason']}" if payload["reason"] else ""
                # Why it failed is said on stderr as well: a terminal, which shows both, needs it once.
                is_said = payload["state"] == "failed" and self._console.is_terminal
                self._say(f"run {payload['state']}{why}", screen="run failed" if is_said else "")
            case "phase":
                self._update(
                    description=f"rollout {rollout}",
                    note=f"{payload['phase']} {payload['done']}/{payload['total']}{self._eta()}",
                )
            case "metrics":
                self._values = payload["values"]
            case "warning":
                self._say(f"warning: {payload['message']}")
            case "environment_state" if payload["state"] in ("barred", "quarantined"):
                self._say(f"{payload['environment']} {payload['state']}: {payload['reason']}")
            case "rollout_finished":
                self._finished(rollout or 0, payload)

    def _finished(self, rollout: int, payload: Mapping[str, Any]) -> None:
        self._eta_s = payload["eta_s"]
        self._history.append((rollout, self._values, payload["elapsed_s"]))
        shown = "  ".join(f"{name} {_number(self._values.get(name))}" for name in _SHOWN)
        self._say(f"rollout {rollout}  {payload['elapsed_s']:.1f} s  {shown}{self._eta()}")
        self._update(completed=rollout + 1)

    def _eta(self) -> str:
        return f"  {timedelta(seconds=round(self._eta_s))} left" if self._eta_s is not None else ""

    def _update(self, **fields: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._task, **fields)

    def _say(self, text: str, *, screen: str = "") -> None:
        """One line to log.txt and to the screen (there `screen`, when given). Model text in it cannot move the cursor."""
        clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
        self._console.print(screen or clean, markup=False)
        if self._log is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            try:
                self._log.write(f"{stamp} {clean}\n")
                self._log.flush()
            except OSError as error:
                raise disk_error(error, "log.txt") from error

    def _final_table(self) -> None:
        if not self._history:
            return
        table = Table("rollout", "seconds", *_SHOWN)
        for rollout, values, seconds in self._history[-20:]:
            table.add_row(str(rollout), f"{seconds:.1f}", *(_number(values.get(name)) for name in _SHOWN))
        self._console.print(table)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
