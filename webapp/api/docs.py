"""The schema, and the page that is made of it on our own server: the usual viewers want inline styles, which our pages forbid."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView

from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role

#: Codes of problems, and when each is answered.
CODES = (
    ("not-authenticated", 401, "No session and no token, or a token that is wrong, expired or revoked."),
    ("forbidden", 403, "The role, or the token's scope, is not enough; with a session also a missing CSRF token."),
    ("not-found", 404, "No such thing, or not in this run."),
    ("method-not-allowed", 405, "The address does not take this method."),
    ("refused", 409, "The act is not possible as things stand now; the detail says why and what to do."),
    (
        "invalid-request",
        422,
        "Fields that are wrong, each named in problems; 400 where the address or the body is damaged.",
    ),
    (
        "invalid-settings",
        422,
        "Settings the trainer's own validation refuses, each named in problems by its dotted name.",
    ),
    ("too-large", 413, "The body is larger than the detail says a request may be."),
    ("out-of-range", 416, "A range of a download begins behind its end; Content-Range says how long it is."),
    ("throttled", 429, "Too many requests; Retry-After says how many seconds to wait."),
    ("bug", 500, "Something broke on our side; the server's log has it."),
)


class Schema(SpectacularAPIView):
    """The OpenAPI schema as JSON."""

    renderer_classes = [OpenApiJsonRenderer]  # noqa: RUF012 - DRF's own shape

    @extend_schema(exclude=True)
    def get(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """For programs that make clients of it."""
        return super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A parameter or a field of a body: name, type in words, and what it means."""

    name: str
    kind: str
    text: str = ""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation as the page shows it."""

    id: str
    tag: str
    method: str
    path: str
    summary: str
    role: str
    scope: str
    parameters: list[Field] = field(default_factory=list)
    body: list[Field] = field(default_factory=list)
    status: str = ""
    answer: str = ""
    fields: list[Field] = field(default_factory=list)


@cache
def operations() -> tuple[Operation, ...]:
    """Every operation, in the order of the schema."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    schemas = schema["components"]["schemas"]
    return tuple(
        _operation(schemas, path, method, found)
        for path, methods in schema["paths"].items()
        for method, found in methods.items()
    )


def _operation(schemas: dict[str, Any], path: str, method: str, found: dict[str, Any]) -> Operation:
    parameters = [
        Field(
            name=one["name"], kind=_words(one["schema"]), text=one.get("description", ""), required=one.get("required", False)
        )
        for one in found.get("parameters", ())
    ]  # fmt: skip
    body = _first_content(found.get("requestBody", {}))
    status, answer = next((code, one) for code, one in found["responses"].items() if code != "default")
    content = _first_content(answer)
    return Operation(
        id=found["operationId"], tag=found["tags"][0], method=method.upper(), path=path, summary=found.get("description", ""),
        role=found["x-role"], scope=found["x-scope"], parameters=parameters, body=_fields(schemas, body), status=status,
        answer=_words(content) if content else "nothing", fields=_fields(schemas, content),
    )  # fmt: skip


def _first_content(holder: dict[str, Any]) -> dict[str, Any]:
    content = holder.get("content", {})
    return dict(next(iter(content.values()))["schema"]) if content else {}


def _resolved(schemas: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    while True:
        if "$ref" in found:
            found = schemas[found["$ref"].rsplit("/", 1)[1]]
        elif found.get("allOf"):
            found = found["allOf"][0]
        elif found.get("type") == "array":
            found = found["items"]
        else:
            return found


def _fields(schemas: dict[str, Any], found: dict[str, Any]) -> list[Field]:
    """Fields of an object, of the rows of a list, or of the rows of a page."""
    if not found:
        return []
    inner = _resolved(schemas, found)
    if set(inner.get("properties", ())) == {"results", "next"}:
        inner = _resolved(schemas, inner["properties"]["results"])
    required = inner.get("required", ())
    return [
        Field(name=name, kind=_words(one), text=one.get("description", ""), required=name in required)
        for name, one in inner.get("properties", {}).items()
    ]


def _words(found: dict[str, Any]) -> str:
    """A type in words: "integer or null", "list of string", "Episode"."""
    if "$ref" in found:
        return str(found["$ref"].rsplit("/", 1)[1])
    for joint in ("allOf", "oneOf", "anyOf"):
        if found.get(joint):
            return " or ".join(dict.fromkeys(_words(one) for one in found[joint]))
    if "enum" in found:
        return "one of " + ", ".join(str(one) for one in found["enum"] if one not in (None, ""))
    kind = str(found.get("type", "any"))
    if kind == "array":
        kind = f"list of {_words(found['items'])}"
    if found.get("format") == "date-time":
        kind = "time"
    return f"{kind} or null" if found.get("nullable") else kind


@require_role(Role.VIEWER)
@require_safe
def documentation(request: HttpRequest) -> HttpResponse:
    """Every operation with what it takes and answers."""
    grouped = groupby(operations(), key=lambda one: one.tag)
    groups = [{"tag": tag, "operations": list(rows)} for tag, rows in grouped]
    context = {"groups": groups, "codes": CODES, "base": f"{settings.SPADEWORK_PUBLIC_URL}/api/v1/"}
    return render(request, "api/docs.html", context)
