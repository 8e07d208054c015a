"""What API views share, and the views about the API itself."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import BadRequest
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.accounts.models import User
from webapp.core.pagination import MAX_PAGE_ROWS, Page

DEFAULT_ROWS = 50


def actor_of(request: Request) -> User:
    """The person a permitted request acts for."""
    assert isinstance(request.user, User)  # every permission of ours wants a role
    return request.user


def limit_of(request: Request) -> int:
    """``?limit=``, at most MAX_PAGE_ROWS. Raises BadRequest."""
    text = request.query_params.get("limit", str(DEFAULT_ROWS))
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_PAGE_ROWS:
        raise BadRequest(f"limit must be a whole number from 1 to {MAX_PAGE_ROWS}.")
    return int(text)


def cursor_of(request: Request) -> str:
    """``?cursor=``: where the page starts; empty for the first."""
    return request.query_params.get("cursor", "")


def page_response(request: Request, page: Page[Any], results: Any) -> Response:
    """``results``, with the address of the page after (None on the last)."""
    url = None
    if page.next_cursor:
        query = request.query_params.copy()
        query["cursor"] = page.next_cursor
        url = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return Response({"results": results, "next": url})


class MeSerializer(serializers.Serializer[Any]):
    """Whom the API takes the caller for."""

    username = serializers.CharField()
    role = serializers.CharField(help_text="Own role; with a token at most what its scope allows.")
    token = serializers.CharField(allow_null=True, help_text="Name of the token; null with a session.")
    scope = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class Me(APIView):
    """Who the caller is, and what they may do."""

    @extend_schema(operation_id="me", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Name and role; with a token its name, scope and expiry."""
        user, token = actor_of(request), request.auth
        body = {
            "username": user.get_username(), "role": str(user.role), "token": token and token.name, "scope": token and token.scope,
            "expires_at": token and token.expires_at,
        }  # fmt: skip
        return Response(MeSerializer(body).data)
