"""The state machine of a run.

``draft → queued → starting → running ⇄ pausing/paused → stopping → stopped | completed | failed | lost``. ``lost`` means that
nobody proves the run alive any more; ``failed`` means that its end was seen. Every act is listed with the states it is valid in.
"""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices


class Status(TextChoices):
    DRAFT = "draft", "draft"
    QUEUED = "queued", "queued"
    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    PAUSING = "pausing", "pausing"
    PAUSED = "paused", "paused"
    STOPPING = "stopping", "stopping"
    STOPPED = "stopped", "stopped"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    LOST = "lost", "lost"


#: States in which a supervisor holds the run and its GPU set.
ACTIVE: Final = (Status.STARTING, Status.RUNNING, Status.PAUSING, Status.PAUSED, Status.STOPPING)
#: States in which no process of the run exists and none will start by itself.
FINAL: Final = (Status.STOPPED, Status.COMPLETED, Status.FAILED, Status.LOST)

#: States in which a run may be put aside or deleted: nobody works on it and nobody waits for it.
AT_REST: Final = (Status.DRAFT, *FINAL)

#: Where each state may go. Anything else is refused.
MOVES: Final[dict[str, tuple[str, ...]]] = {
    Status.DRAFT: (Status.QUEUED,),
    Status.QUEUED: (Status.STARTING, Status.STOPPED),
    Status.STARTING: (Status.RUNNING, Status.STOPPING, *FINAL),
    Status.RUNNING: (Status.PAUSING, Status.PAUSED, Status.STOPPING, *FINAL),
    Status.PAUSING: (Status.PAUSED, Status.RUNNING, Status.STOPPING, *FINAL),
    Status.PAUSED: (Status.RUNNING, Status.STOPPING, *FINAL),
    Status.STOPPING: FINAL,
    Status.STOPPED: (Status.QUEUED,),
    Status.COMPLETED: (),
    Status.FAILED: (Status.QUEUED,),
    Status.LOST: (Status.QUEUED,),
}

#: What a person may do with a run, and in which states.
ACTS: Final[dict[str, tuple[str, ...]]] = {
    "start": (Status.DRAFT,),
    "pause": (Status.RUNNING,),
    "unpause": (Status.PAUSING, Status.PAUSED),
    "stop": (Status.QUEUED, Status.STARTING, Status.RUNNING, Status.PAUSING, Status.PAUSED),
    "checkpoint": (Status.RUNNING, Status.PAUSED),
    "resume": (Status.STOPPED, Status.FAILED, Status.LOST),
    "clone": tuple(Status),
    "rename": tuple(Status),
    "archive": AT_REST,
    "delete": AT_REST,
    "quarantine": tuple(Status),
    "release": tuple(Status),
}


def sources(target: str) -> tuple[str, ...]:
    """States from which ``target`` may be reached."""
    return tuple(state for state, targets in MOVES.items() if target in targets)


def acts_in(status: str) -> list[str]:
    """What a person may do with a run in this state, in the order of :data:`ACTS`."""
    return [act for act, states in ACTS.items() if status in states]
