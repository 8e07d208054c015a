"""What every page of one run shows around its content: header, tabs, acts, and where its socket is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from webapp.accounts.roles import Role, has_role
from webapp.runs.models import Run
from webapp.runs.services_shelf import restorable
from webapp.runs.states import ACTIVE, FINAL, Status, acts_in

TABS = (
    ("overview", "Overview", "runs:page"),
    ("charts", "Charts", "runs:charts"),
    ("environments", "Environments", "runs:environments"),
    ("memory", "Memory", "runs:memory"),
    ("corpus", "Corpus", "runs:corpus"),
    ("regret", "Regret", "runs:regret"),
    ("episodes", "Episodes", "runs:episodes"),
    ("checkpoints", "Checkpoints", "runs:checkpoints"),
    ("config", "Config", "runs:config"),
    ("alerts", "Alerts", "runs:alerts"),
    ("log", "Log", "runs:log"),
    ("system", "System", "runs:system"),
)


@dataclass(frozen=True, kw_only=True)
class Act:
    """A button of the header. ``needs_dialog``: it asks first."""

    name: str
    label: str
    icon: str
    needs_dialog: bool = False
    is_danger: bool = False


ACT_BUTTONS = (
    Act(name="start", label="Start", icon="play"),
    Act(name="pause", label="Pause", icon="pause"),
    Act(name="unpause", label="Resume", icon="play"),
    Act(name="resume", label="Resume from checkpoint", icon="play"),
    Act(name="checkpoint", label="Checkpoint", icon="download"),
    Act(name="stop", label="Stop", icon="stop", needs_dialog=True, is_danger=True),
)


def run_context(request: HttpRequest, run: Run, tab: str, **more: Any) -> Mapping[str, Any]:
    """Context of a run's page. ``live_cursor`` is read from ``run``, which must be loaded before the page's other queries."""
    may_operate = has_role(request.user, Role.OPERATOR)
    possible = set(acts_in(run.status)) if may_operate else set()
    if run.rollouts_done >= run.total_rollouts:
        possible.discard("resume")  # nothing is left to do; a clone with more rollouts would be the way
    if run.deleted_at is not None:
        possible -= {"start", "resume"}
    return {
        "run": run,
        "tab": tab,
        "tabs": [
            {"label": label, "url": reverse(url, args=[run.pk]), "active": key == tab} for key, label, url in TABS
        ],
        "acts": [act for act in ACT_BUTTONS if act.name in possible],
        "may_operate": may_operate,
        "may_archive": "archive" in possible and run.archived_at is None and run.deleted_at is None,
        "may_delete": "delete" in possible and run.deleted_at is None,
        "may_restore": may_operate and (run.archived_at is not None or run.deleted_at is not None),
        "restore_days": restorable().days,
        "gone_at": run.deleted_at + restorable() if run.deleted_at else None,
        "is_active": run.status in ACTIVE,
        "is_final": run.status in FINAL,
        "is_broken": run.status in (Status.FAILED, Status.LOST),
        "live_cursor": run.last_cursor,
        "run_color": f"run-c{run.pk % 10}",
        **more,
    }
