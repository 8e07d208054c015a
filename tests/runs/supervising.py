"""A scripted trainer under a real supervisor; ``when`` acts between two looks of it. For tests with Django set up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from webapp.accounts.models import User
from webapp.runs import services
from webapp.runs.models import Attempt, Run
from webapp.runs.supervision.lease import claim_next
from webapp.runs.supervision.proctree import Process
from webapp.runs.supervision.supervisor import Patience, Supervisor

FAKE = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))
QUICK = Patience(heartbeat_s=0.2, commands_s=0.05, stop_s=0.5, term_s=0.5, shutdown_s=0.5, database_s=20)
SET = "here:all"


def queued(operator: User, **script: Any) -> Run:
    config = RunConfig(description=json.dumps({"rollouts": 3, **script}))
    run = services.create_run(actor=operator, name="fake", config=config)
    return services.start_run(actor=operator, run_id=run.pk)


def when(condition: Callable[[], bool], act: Callable[[], Any]) -> Callable[[], bool]:
    """A `shutting_down` that never asks to shut down, but acts once as soon as the condition holds."""
    done = False

    def look() -> bool:
        nonlocal done
        if not done and condition():
            done = True
            act()
        return False

    return look


def supervise(run: Run, shutting_down: Callable[[], bool] = lambda: False, **patience: float) -> Run:
    claim = claim_next(gpu_set=SET)
    assert claim is not None
    assert claim.run_id == run.pk
    quick = Patience(**{**{name: getattr(QUICK, name) for name in QUICK.__slots__}, **patience})
    Supervisor(claim, program=FAKE, patience=quick, shutting_down=shutting_down).supervise()
    run.refresh_from_db()
    return run


def is_under_way(run: Run, rollouts: int = 1) -> Callable[[], bool]:
    return lambda: Run.objects.get(pk=run.pk).rollouts_done >= rollouts


def trainer_of(run: Run) -> Process:
    attempt = Attempt.objects.get(run=run, number=run.attempt)
    assert attempt.pid is not None
    assert attempt.process_started is not None
    return Process(attempt.pid, attempt.process_started)
