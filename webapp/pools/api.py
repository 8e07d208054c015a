"""API of pools: choosing environments, building and downloading the archive."""

from __future__ import annotations

from django.http import FileResponse, Http404, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsReviewer
from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.environments.selectors import matching_ids
from webapp.environments.views import filter_in
from webapp.pools import selectors, services
from webapp.pools.serializers import (
    AddedSerializer,
    ChosenSerializer,
    NewPoolSerializer,
    PoolItemSerializer,
    PoolSerializer,
)
from webapp.pools.views import ACTS, archive_of
from webapp.runs.errors import ActRefused
from webapp.runs.selectors import access_run

_ACTS = {name: act for name, act in ACTS.items() if name != "delete"}


class Pools(ApiView):
    """Pools."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @lists("pools_list", PoolSerializer)
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = selectors.list_pools(**paging(request))
        return page_response(request, page, PoolSerializer(page.rows, many=True).data)

    @answers("pools_create", PoolSerializer, takes=NewPoolSerializer, status=201)
    def post(self, request: Request) -> Response:
        """A new, empty draft."""
        pool = services.create_pool(actor=actor_of(request), **sent(request, NewPoolSerializer))
        return Response(PoolSerializer(pool).data, status=201)


class OnePool(ApiView):
    """One pool."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @answers("pools_read", PoolSerializer)
    def get(self, request: Request, pool_id: int) -> Response:
        """Its state and the progress of its build."""
        return Response(PoolSerializer(selectors.access_pool(pool_id=pool_id)).data)

    @answers("pools_delete", None, status=204)
    def delete(self, request: Request, pool_id: int) -> Response:
        """Delete the pool and its archive; the environments stay."""
        pool = selectors.access_pool(pool_id=pool_id)
        services.delete_pool(actor=actor_of(request), pool_id=pool.pk)
        return Response(status=204)


class PoolItems(ApiView):
    """Environments of a pool."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @lists("pools_items", PoolItemSerializer, filters={"show": "rejected: only those the last build rejected."})
    def get(self, request: Request, pool_id: int) -> Response:
        """In the order in which they were put in."""
        only_rejected = request.query_params.get("show") == "rejected"
        pool = selectors.access_pool(pool_id=pool_id)
        page = selectors.items_of(pool=pool, only_rejected=only_rejected, **paging(request))
        return page_response(request, page, PoolItemSerializer(page.rows, many=True).data)

    @answers("pools_add", AddedSerializer, takes=ChosenSerializer)
    def post(self, request: Request, pool_id: int) -> Response:
        """Put environments of a run into the pool; an archive built before is no longer offered."""
        pool, values = selectors.access_pool(pool_id=pool_id), sent(request, ChosenSerializer)
        query = QueryDict(mutable=True)
        query.update(values["filters"])
        ids = matching_ids(run=access_run(run_id=values["run"]), chosen=filter_in(query), keys=values.get("keys"))
        if not ids:
            raise ActRefused("No environment of this run is chosen: look at the keys or the filters.")
        added = services.add_environments(actor=actor_of(request), pool_id=pool.pk, environment_ids=ids)
        return Response({"chosen": len(ids), "added": added})


class PoolAct(ApiView):
    """An act on a pool."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @extend_schema(
        operation_id="pools_act", request=None, responses=PoolSerializer,
        parameters=[OpenApiParameter("act", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(_ACTS))],
    )  # fmt: skip
    def post(self, request: Request, pool_id: int, act: str) -> Response:
        """Build: judge every program again in fresh sandboxes and make the archive, by a worker. Stop: end a build."""
        pool, service = selectors.access_pool(pool_id=pool_id), _ACTS.get(act)
        if service is None:
            raise Http404(f"There is no act {act}; there are {', '.join(_ACTS)}.")
        service(actor=actor_of(request), pool_id=pool.pk)
        return Response(PoolSerializer(selectors.access_pool(pool_id=pool.pk)).data)


class PoolArchive(ApiView):
    """The archive of a pool."""

    @extend_schema(operation_id="pools_download", responses={(200, "application/x-tar"): OpenApiTypes.BINARY})
    def get(self, request: Request, pool_id: int) -> FileResponse:
        """Download it; there is none before the build has judged every program."""
        return archive_of(selectors.access_pool(pool_id=pool_id))
