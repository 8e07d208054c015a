"""What the sandbox answers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

StageResult = Literal["passed", "failed", "skipped", "unverifiable"]


@dataclass(frozen=True)
class EnvironmentHandle:
    """One loaded environment version; ends its worker and episodes by `close()`."""

    number: int
    class_name: str
    _close: Callable[[int], None] = field(repr=False, compare=False)

    def close(self) -> None:
        """Stop the worker of this version. Calling it twice is allowed."""
        self._close(self.number)


@dataclass(frozen=True, slots=True)
class EpisodeHandle:
    """One episode of one environment version, for `step_many` and `end_many`."""

    environment: int
    number: int


class Opened(NamedTuple):
    """Reply to a reset. `stdout` is what the program printed meanwhile (capped)."""

    episode: EpisodeHandle
    observation: str
    info: dict[str, float]
    stdout: str = ""


class Stepped(NamedTuple):
    """Reply to a step. `reward` is finite and within `Limits.reward_abs`."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, float]
    stdout: str = ""


@dataclass(frozen=True)
class StageOutcome:
    """One gate of spec 01, section 4: what was found, with its evidence, in `elapsed_s` seconds."""

    stage: str
    outcome: StageResult
    message: str = ""
    line: int | None = None
    elapsed_s: float = 0.0
    evidence: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "stage": self.stage,
            "outcome": self.outcome,
            "message": self.message,
            "line": self.line,
            "elapsed_s": round(self.elapsed_s, 6),
            "evidence": self.evidence,
            "measures": self.measures,
        }


@dataclass(frozen=True)
class Report:
    """Verdict of `examine`: accepted, or the first failed stage; `tier` is the isolation it ran under."""

    accepted: bool
    failed_stage: str | None
    stages: Sequence[StageOutcome]
    class_name: str | None
    measures: dict[str, float]
    tier: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for storing with the environment."""
        return {
            "accepted": self.accepted,
            "failed_stage": self.failed_stage,
            "stages": [stage.as_dict() for stage in self.stages],
            "class_name": self.class_name,
            "measures": self.measures,
            "tier": self.tier,
        }
