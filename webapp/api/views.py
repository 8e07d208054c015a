"""What API views share: the base view, paging, and how a view is documented; and who the caller is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from django.core.exceptions import BadRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.accounts.models import ApiToken, AuditEntry, User
from webapp.accounts.permissions import IsAdmin
from webapp.accounts.selectors import audit_entries
from webapp.core.pagination import MAX_PAGE_ROWS, Page, keyset_page

DEFAULT_ROWS = 50
ViewT = TypeVar("ViewT", bound=Callable[..., Any])


class ApiView(APIView):
    """Base of every view: viewers read and operators write, unless ``permission_classes`` says otherwise."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Permission and limits, and texts that no database takes are refused. Raises BadRequest."""
        super().initial(request, *args, **kwargs)
        texts = [*map(str, kwargs.values()), *(text for _, values in request.query_params.lists() for text in values)]
        if any("\x00" in text for text in texts):
            raise BadRequest("The address holds a NUL character; leave it out.")


def actor_of(request: Request) -> User:
    """The person a permitted request acts for."""
    assert isinstance(request.user, User)  # every permission of ours wants a role
    return request.user


def sent(request: Request, kind: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """The body after validation. Raises DRF's ValidationError with a sentence per wrong field."""
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return cast(dict[str, Any], serializer.validated_data)


def limit_of(request: Request) -> int:
    """``?limit=``, at most MAX_PAGE_ROWS. Raises BadRequest."""
    text = request.query_params.get("limit", str(DEFAULT_ROWS))
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_PAGE_ROWS:
        raise BadRequest(f"limit must be a whole number from 1 to {MAX_PAGE_ROWS}.")
    return int(text)


def paging(request: Request) -> dict[str, Any]:
    """``cursor`` and ``size`` as selectors take them. Raises BadRequest."""
    return {"cursor": request.query_params.get("cursor", ""), "size": limit_of(request)}


def page_response(request: Request, page: Page[Any], results: Any) -> Response:
    """``results``, with the address of the page after (None on the last)."""
    url = None
    if page.next_cursor:
        query = request.query_params.copy()
        query["cursor"] = page.next_cursor
        url = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return Response({"results": results, "next": url})


@cache
def _page_serializer(kind: type[serializers.BaseSerializer[Any]]) -> type[serializers.Serializer[Any]]:
    name = f"{kind.__name__.removesuffix('Serializer')}PageSerializer"
    fields = {
        "results": kind(many=True),
        "next": serializers.URLField(allow_null=True, help_text="Address of the next page; null on the last."),
    }
    return type(name, (serializers.Serializer,), {**fields, "__doc__": "One page."})


_PAGING = {
    "cursor": "Where the page starts; part of the address in `next`.",
    "limit": f"Rows a page, 1 to {MAX_PAGE_ROWS}; {DEFAULT_ROWS} by default.",
}


def lists(
    name: str, kind: type[serializers.BaseSerializer[Any]], *, filters: Mapping[str, str] | None = None
) -> Callable[[ViewT], ViewT]:
    """Document a paged list of ``kind`` with its query parameters, each with a sentence."""
    described = {**(filters or {}), **_PAGING}
    parameters = [
        OpenApiParameter(parameter, OpenApiTypes.STR, OpenApiParameter.QUERY, description=text)
        for parameter, text in described.items()
    ]
    return extend_schema(operation_id=name, parameters=parameters, responses=_page_serializer(kind))  # type: ignore[arg-type]


def answers(
    name: str,
    kind: type[serializers.BaseSerializer[Any]] | None,
    *,
    takes: type[serializers.BaseSerializer[Any]] | None = None,
    status: int = 200,
    query: Mapping[str, str] | None = None,
    many: Sequence[str] = (),
) -> Callable[[ViewT], ViewT]:
    """Document one operation: what it takes and answers; ``many`` are query parameters that may be repeated."""
    parameters = [
        OpenApiParameter(parameter, OpenApiTypes.STR, OpenApiParameter.QUERY, description=text, many=parameter in many)
        for parameter, text in (query or {}).items()
    ]
    return extend_schema(operation_id=name, parameters=parameters, request=takes, responses={status: kind})


class MeSerializer(serializers.Serializer[Any]):
    """Whom the API takes the caller for."""

    username = serializers.CharField()
    role = serializers.CharField(help_text="Own role; with a token at most what its scope allows.")
    token = serializers.CharField(allow_null=True, help_text="Name of the token; null with a session.")
    scope = serializers.CharField(allow_null=True, help_text="Scope of the token; null with a session.")
    expires_at = serializers.DateTimeField(allow_null=True)


class Me(ApiView):
    """Who the caller is, and what they may do."""

    @answers("me", MeSerializer)
    def get(self, request: Request) -> Response:
        """Name and role; with a token its name, scope and expiry."""
        user, token = actor_of(request), cast(ApiToken | None, request.auth)
        body = {
            "username": user.get_username(), "role": str(user.role), "token": token and token.name, "scope": token and token.scope,
            "expires_at": token and token.expires_at,
        }  # fmt: skip
        return Response(MeSerializer(body).data)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    """Something a person did; ``detail`` names the token when a program did it for them."""

    class Meta:
        model = AuditEntry
        fields = ("id", "at", "actor_name", "action", "object_type", "object_id", "object_label", "detail")


class Audit(ApiView):
    """The audit log."""

    permission_classes = [IsAdmin]  # noqa: RUF012 - DRF's own shape

    @lists("audit_list", AuditEntrySerializer)
    def get(self, request: Request) -> Response:
        """What people did, newest first."""
        page = keyset_page(audit_entries(), order=("-at", "-id"), **paging(request))
        return page_response(request, page, AuditEntrySerializer(page.rows, many=True).data)
