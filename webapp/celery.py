"""The Celery application. Tasks live in each feature's ``tasks.py``, are thin, and carry ids only.

Queues: ``default`` (short jobs) and ``gpu`` (one run at a time per worker).
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

app = Celery("spadework")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
