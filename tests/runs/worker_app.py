"""The project's Celery application with the scripted trainer and shorter waits: ``celery -A tests.runs.worker_app``."""

from __future__ import annotations

import sys
from pathlib import Path

import django

django.setup()

from webapp.celery import app  # noqa: E402
from webapp.runs import tasks  # noqa: E402
from webapp.runs.supervision import lease, supervisor, sweeper  # noqa: E402

supervisor.TRAINER = (sys.executable, str(Path(__file__).with_name("fake_trainer.py")))
lease.LEASE_S = sweeper.LEASE_S = 4
lease._database_age_s = lambda: 100.0
tasks.SWEEP_EVERY_S = 1.0

celery = app
