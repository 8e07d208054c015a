"""What people do here. Each function owns its transaction and its audit entry; views check the role first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from django.db import transaction
from django.forms.models import model_to_dict

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.jobs import send
from webapp.keeping.folders import inside
from webapp.keeping.models import ImportJob
from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying
from webapp.runs.models import Retention
from webapp.runs.retention import Removal, removal_of, set_retention
from webapp.runs.services import clean_name

IMPORT_TASK = "webapp.keeping.tasks.import_directory"
MEASURE_TASK = "webapp.keeping.tasks.measure_disk"


@dataclass(frozen=True, kw_only=True)
class RetentionPlan:
    """Settings and what they would remove at the next housekeeping; ``digest`` stands for both."""

    wanted: Retention
    removal: Removal
    digest: str


def plan_retention(*, wanted: Retention) -> RetentionPlan:
    """What a change would remove; nothing changes."""
    removal = removal_of(wanted)
    facts = (sorted(model_to_dict(wanted, exclude=["id"]).items()), removal)
    return RetentionPlan(
        wanted=wanted, removal=removal, digest=hashlib.sha256(repr(facts).encode()).hexdigest()
    )  # fmt: skip


def hold_retention(*, actor: User, plan: RetentionPlan, confirmed: str) -> bool:
    """Hold the settings from now on; False, and nothing changes, when they remove something that was not confirmed by its digest."""
    if not plan.removal.is_nothing and confirmed != plan.digest:
        return False
    set_retention(actor=actor, wanted=plan.wanted)
    return True


@transaction.atomic
def request_import(
    *, actor: User, path: str, name: str = "", copying: str = Copying.NOTHING, accept_damage: bool = False
) -> ImportJob:
    """Have a worker check and take in a run directory below the import folder. Raises ActRefused."""
    path = str(PurePosixPath(path))
    place = inside(path)
    if not path.strip("/. ") or not (place / "config.json").is_file():
        raise ActRefused("That folder is no run directory: it holds no config.json. Choose the folder that does.")
    if copying not in Copying.values:
        raise ActRefused("There is no such way of copying; choose one of the three.")
    job, made = ImportJob.objects.get_or_create(
        path=path, state=ImportJob.State.WAITING,
        defaults={"by": actor, "name": clean_name(name), "copying": copying, "accept_damage": accept_damage},
    )  # fmt: skip
    if not made:
        raise ActRefused(f"{path} is being imported already; wait for it.")
    record(
        actor=actor, action="import.requested", target=job, detail={"copying": str(copying), "damaged": accept_damage}
    )
    transaction.on_commit(partial(send, IMPORT_TASK, job.pk))
    return job
