"""API of keeping: what runs take of the disk, how long what is kept, run directories made elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.forms.models import model_to_dict
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsAdmin, IsOperator
from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.environments.jobs import send_plain
from webapp.keeping import disk, selectors, services
from webapp.keeping.folders import list_folder
from webapp.keeping.serializers import (
    ChangedRetentionSerializer,
    DiskUseSerializer,
    ImportSerializer,
    ListingSerializer,
    NewImportSerializer,
    RetentionPlanSerializer,
    RetentionSerializer,
    RetentionSettingsSerializer,
    TotalsSerializer,
)
from webapp.runs.errors import ActRefused
from webapp.runs.models import Retention
from webapp.runs.retention import removal_of, restore_days, retention


class DiskUses(ApiView):
    """Disk use of runs."""

    @lists("disk_list", DiskUseSerializer)
    def get(self, request: Request) -> Response:
        """Measured runs, the largest first; deleted ones too, as long as they can be restored."""
        page = disk.list_use(**paging(request))
        return page_response(request, page, DiskUseSerializer(page.rows, many=True).data)


class DiskTotals(ApiView):
    """Disk use of everything."""

    @answers("disk_totals", TotalsSerializer)
    def get(self, request: Request) -> Response:
        """Sums over runs, the database, and what is free."""
        return Response(TotalsSerializer(disk.totals()).data)


class DiskMeasure(ApiView):
    """Measuring."""

    @answers("disk_measure", None, status=202)
    def post(self, request: Request) -> Response:
        """Have a worker measure runs whose figures are missing or old; workers do so every five minutes anyway."""
        send_plain(services.MEASURE_TASK)
        return Response(status=202)


def _held() -> Response:
    held = retention()
    body = {**_settings(held), "restore_days_in_force": restore_days(held), "removes": asdict(removal_of(held))}
    return Response(RetentionSerializer(body).data)


def _settings(held: Retention) -> dict[str, Any]:
    return model_to_dict(held, exclude=["id"])


def _planned(values: dict[str, Any]) -> services.RetentionPlan:
    """The settings that hold with these instead. What was not sent stays."""
    return services.plan_retention(wanted=Retention(**{**_settings(retention()), **values}))


class RetentionSettings(ApiView):
    """How long what is kept."""

    permission_classes = [IsAdmin]  # noqa: RUF012 - DRF's own shape

    @answers("retention_read", RetentionSerializer)
    def get(self, request: Request) -> Response:
        """The settings that hold, and what is due to be removed."""
        return _held()

    @answers("retention_change", RetentionSerializer, takes=ChangedRetentionSerializer)
    def patch(self, request: Request) -> Response:
        """Change settings. A change that removes something is refused unless confirmed with the digest of its plan."""
        values = sent(request, ChangedRetentionSerializer)
        confirmed, plan = values.pop("confirmed"), _planned(values)
        if not services.hold_retention(actor=actor_of(request), plan=plan, confirmed=confirmed):
            gone = plan.removal
            what = (
                f"{gone.runs} deleted runs, {gone.tensor_files} token files, {gone.samples} machine measurements, "
                f"{gone.transcripts} transcripts and {gone.logs} printed logs"
            )
            since = "What it removes has changed since it was planned. " if confirmed else ""
            raise ActRefused(
                f"{since}Nothing was changed: this would remove {what} for good. Plan it at retention/plan/ and send the "
                "digest of the plan as confirmed."
            )
        return _held()


class PlanRetention(ApiView):
    """What a change would remove."""

    permission_classes = [IsAdmin]  # noqa: RUF012 - DRF's own shape

    @answers("retention_plan", RetentionPlanSerializer, takes=RetentionSettingsSerializer)
    def post(self, request: Request) -> Response:
        """Nothing changes; the digest confirms the change if what it removes is still the same then."""
        plan = _planned(sent(request, RetentionSettingsSerializer))
        return Response(RetentionPlanSerializer({"removes": asdict(plan.removal), "digest": plan.digest}).data)


class Imports(ApiView):
    """Imports of run directories."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @lists("imports_list", ImportSerializer)
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = selectors.list_imports(**paging(request))
        return page_response(request, page, ImportSerializer(page.rows, many=True).data)

    @answers("imports_create", ImportSerializer, takes=NewImportSerializer, status=201)
    def post(self, request: Request) -> Response:
        """Have a worker check and take in a run directory; imported again, it adds what is new."""
        job = services.request_import(actor=actor_of(request), **sent(request, NewImportSerializer))
        return Response(ImportSerializer(selectors.access_import(job_id=job.pk)).data, status=201)


class OneImport(ApiView):
    """One import."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @answers("imports_read", ImportSerializer)
    def get(self, request: Request, job_id: int) -> Response:
        """How it goes, or why it was refused."""
        return Response(ImportSerializer(selectors.access_import(job_id=job_id)).data)


class ImportFolders(ApiView):
    """The folder of runs made elsewhere."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @answers(
        "imports_folders", ListingSerializer, query={"path": "Look into this folder; without it SPADEWORK_IMPORT_ROOT."}
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Folders below SPADEWORK_IMPORT_ROOT, at most 500, which of them hold a run, and as which run they were imported."""
        return Response(ListingSerializer(list_folder(path=request.query_params.get("path", ""))).data)
