"""Errors by owner: the environment's own (`EnvironmentFault`), this machine's (`SandboxUnavailable`), ours (`HostError`)."""

from __future__ import annotations

from typing import Literal, get_args

FaultKind = Literal["exception", "timeout", "memory", "output", "exit", "crash", "contract", "nondeterministic"]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)


class EnvironmentFault(Exception):
    """The generated program did something wrong. Owner: the designer.

    `kind` is what happened, `stage` where (`parse`, `load`, `reset`, `step`, `solution`), `line` the line of the
    generated source where known, `traceback_text` the frames inside the generated source, `stdout` what it printed.
    """

    def __init__(
        self,
        kind: FaultKind,
        stage: str,
        message: str,
        line: int | None = None,
        traceback_text: str = "",
        stdout: str = "",
    ) -> None:
        """Keep the parts; `str(fault)` is one line a person can act on."""
        super().__init__(kind, stage, message)
        self.kind: FaultKind = kind
        self.stage = stage
        self.message = message
        self.line = line
        self.traceback_text = traceback_text
        self.stdout = stdout

    def __str__(self) -> str:
        """`step: exception: ZeroDivisionError: division by zero (line 12)`."""
        where = f" (line {self.line})" if self.line is not None else ""
        return f"{self.stage}: {self.kind}: {self.message}{where}"


class SandboxUnavailable(Exception):
    """This machine cannot isolate the worker as demanded; no generated code was run. Owner: the operator."""


class HostError(Exception):
    """The sandbox's own machinery, or the way it was called, failed. Never a reward and never the environment's fault."""
