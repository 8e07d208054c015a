"""Run generated environments safely and fast: see README.md in this folder for the threat model."""

from sandbox.errors import EnvironmentFault, FaultKind, HostError, SandboxUnavailable
from sandbox.facade import Sandbox
from sandbox.host import SandboxHost
from sandbox.isolation.tiers import TIERS, UNSANDBOXED
from sandbox.limits import GuessRule, Limits
from sandbox.results import EnvironmentHandle, EpisodeHandle, Opened, Report, StageOutcome, Stepped

__all__ = [
    "TIERS",
    "UNSANDBOXED",
    "EnvironmentFault",
    "EnvironmentHandle",
    "EpisodeHandle",
    "FaultKind",
    "GuessRule",
    "HostError",
    "Limits",
    "Opened",
    "Report",
    "Sandbox",
    "SandboxHost",
    "SandboxUnavailable",
    "StageOutcome",
    "Stepped",
]
