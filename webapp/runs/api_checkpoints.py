"""API of checkpoints: which there are, which is the best, and one as an archive."""

from __future__ import annotations

from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsOperator
from webapp.api.views import ApiView, actor_of, lists, page_response, paging
from webapp.core.pagination import Page
from webapp.runs import selectors
from webapp.runs.checkpoint_files import files_of_rows, resolve_name, stored_checkpoints
from webapp.runs.checkpoint_sending import CONTENT_TYPE, send_archive
from webapp.runs.models import Checkpoint
from webapp.runs.serializers import CheckpointSerializer

_PARTS = ("model", "all")


class Checkpoints(ApiView):
    """Checkpoints of a run."""

    @lists("runs_checkpoints", CheckpointSerializer)
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first, superseded ones and those no longer on the disk too."""
        run = selectors.access_run(run_id=run_id)
        page: Page[Checkpoint] = selectors.checkpoints_of(run=run, **paging(request))
        files = files_of_rows(run=run, rows=page.rows, stored=stored_checkpoints(run=run))
        rows = CheckpointSerializer(page.rows, many=True, context={"files": files}).data
        return page_response(request, page, rows)


class CheckpointArchive(ApiView):
    """The archive of a checkpoint."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @extend_schema(
        operation_id="runs_checkpoint_download",
        responses={
            (200, CONTENT_TYPE): OpenApiTypes.BINARY, (206, CONTENT_TYPE): OpenApiTypes.BINARY,
        },
        parameters=[
            OpenApiParameter("part", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(_PARTS)),
            OpenApiParameter(
                "Range", OpenApiTypes.STR, OpenApiParameter.HEADER, description="bytes=FIRST- or bytes=FIRST-LAST, to go on."
            ),
            OpenApiParameter(
                "If-Range", OpenApiTypes.STR, OpenApiParameter.HEADER,
                description="ETag of the answer that broke off: without the same one all of it is sent.",
            ),
        ],
    )  # fmt: skip
    def get(self, request: Request, run_id: int, name: str, part: str) -> HttpResponseBase:
        """A checkpoint as a tar: the model is a Hugging Face directory, all of it also holds the optimiser and the loop's state.

        The bytes follow from the files alone, so that a download that broke off goes on with Range.
        """
        run = selectors.access_run(run_id=run_id)
        if part not in _PARTS:
            raise Http404("A checkpoint is downloaded as model or all.")
        return send_archive(
            request._request, actor=actor_of(request), run=run, name=resolve_name(run=run, name=name),
            part="model" if part == "model" else "all",
        )  # fmt: skip
