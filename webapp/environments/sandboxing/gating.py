"""The gates once more, over a stored program, as the trainer's run would have them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from webapp.environments.jobs import claim, release
from webapp.environments.models import GateRun
from webapp.environments.sandboxing.bench import BENCH, BenchUnavailable, Demands
from webapp.runs import journal
from webapp.runs.configuration import parse_config
from webapp.runs.errors import InvalidConfig
from webapp.runs.storable import storable, storable_text


def examine(*, gate_run_id: int) -> None:
    """Run `parse` to `solvable` and store the report. Does nothing when it is done already or somebody else is at it."""
    taken = claim(GateRun, gate_run_id)
    if taken is None:
        return
    job, lease = taken
    try:
        if job.state == GateRun.State.WAITING:
            _store(job, lease, **_report(job))
    finally:
        release(GateRun, job.pk, lease)


def _report(job: GateRun) -> dict[str, Any]:
    code = job.variant.code if job.variant is not None else job.environment.code
    try:
        demands = Demands.of(parse_config(job.environment.run.config))
        with BENCH.borrow(demands) as sandbox:
            report = sandbox.examine(code, demands.kind, guess=demands.guess)
    except (BenchUnavailable, InvalidConfig) as error:
        return {"state": GateRun.State.FAILED, "failure": storable_text(str(error))}
    plain = storable(report.as_dict())
    return {
        "state": GateRun.State.DONE, "failure": "", "accepted": report.accepted, "failed_stage": report.failed_stage,
        "class_name": plain["class_name"], "stages": plain["stages"], "measures": plain["measures"], "sandbox_tier": report.tier,
    }  # fmt: skip


def _store(job: GateRun, lease: UUID, **fields: Any) -> None:
    with transaction.atomic():
        if GateRun.objects.filter(pk=job.pk, lease=lease).update(finished_at=timezone.now(), **fields) != 1:
            return
        payload = {"gate_run": job.pk, "environment": job.environment.key, "accepted": fields.get("accepted")}
        journal.append(run_id=job.environment.run_id, kind="gates_rerun", payload=payload)
