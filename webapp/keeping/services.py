"""What people do here. Each function owns its transaction and its audit entry; views check the role first."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.jobs import send
from webapp.keeping.folders import inside
from webapp.keeping.models import ImportJob
from webapp.runs.errors import ActRefused
from webapp.runs.import_copy import Copying
from webapp.runs.services import clean_name

IMPORT_TASK = "webapp.keeping.tasks.import_directory"
MEASURE_TASK = "webapp.keeping.tasks.measure_disk"


@transaction.atomic
def request_import(
    *, actor: User, path: str, name: str = "", copying: str = Copying.NOTHING, accept_damage: bool = False
) -> ImportJob:
    """Have a worker check and take in a run directory below the import folder. Raises ActRefused."""
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
