"""Errors of a run, sorted by who has to act.

The owner decides what a page shows and whether a retry makes sense: a `UserError` waits for a person, an `InfrastructureError`
may pass, a `Bug` is ours. Faults of generated environments are `sandbox.EnvironmentFault` and never end a run.
"""

from __future__ import annotations

from typing import Literal

Owner = Literal["user", "environment", "limit", "infrastructure", "cancelled", "bug"]


class TrainerError(Exception):
    """Something that ends a run. The message says what happened, where, and what to do."""

    owner: Owner = "bug"


class UserError(TrainerError):
    """Wrong settings, paths or data given by a person."""

    owner: Owner = "user"


class LimitError(TrainerError):
    """A configured or physical limit was reached: disk, memory, context."""

    owner: Owner = "limit"


class InfrastructureError(TrainerError):
    """The machinery failed: sandbox, sampler, learner, file system."""

    owner: Owner = "infrastructure"


class NotFiniteError(InfrastructureError):
    """Loss or gradient of an update is not finite; the weights are as they were before it."""


class Cancelled(TrainerError):
    """The run was stopped on purpose."""

    owner: Owner = "cancelled"
