"""How drf-spectacular describes our views: authentication, the role each operation needs, problems."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework.permissions import SAFE_METHODS

from webapp.accounts.models import SCOPE_ROLES
from webapp.accounts.roles import Role
from webapp.core.problems import CONTENT_TYPE

_ORDER = ("runs", "environments", "episodes", "review", "pools", "corpora", "keeping", "alerts", "api")


#: What stands in addresses.
_IN_PATHS = {
    "run_id": "Id of the run.",
    "key": "Key, such as r0004-s03.",
    "act": "What to do.",
    "episode_id": "Id of the episode.",
    "document_id": "Id of the document.",
    "flag_id": "Id of the flag.",
    "queue_id": "Id of the queue.",
    "pool_id": "Id of the pool.",
    "webhook_id": "Id of the webhook.",
    "corpus_id": "Id of the corpus.",
    "job_id": "Id of the import.",
    "name": "Name of the checkpoint; best and latest name one too.",
    "part": "model or all.",
}


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """``Authorization: Bearer spw_…``."""

    target_class = "webapp.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """As OpenAPI spells it."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "spw_…"}


class RoleSchema(AutoSchema):
    """Adds the role an operation needs, and groups operations by the app they are of."""

    def get_tags(self) -> list[str]:
        """Name of the app."""
        return [type(self.view).__module__.split(".")[1]]

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """The operation with ``x-role``."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            for parameter in operation.get("parameters", ()):
                parameter.setdefault("description", _IN_PATHS.get(parameter["name"], ""))
            operation["x-role"] = self._role().value
            operation["x-scope"] = next(str(scope) for scope, role in SCOPE_ROLES.items() if role == self._role())
        return operation

    def _role(self) -> Role:
        permission = next(one for one in self.view.permission_classes if hasattr(one, "read"))
        role: Role = permission.read if self.method in SAFE_METHODS else permission.write
        return role


def add_problems(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Every operation may answer with problem details; operations come in the order of the product."""
    text, status = {"type": "string"}, {"type": "integer"}
    result["components"].setdefault("schemas", {})["Problem"] = {
        "type": "object",
        "description": "Problem details of RFC 9457.",
        "required": ["type", "title", "status", "code", "detail", "instance"],
        "properties": {
            "type": text, "title": text, "status": status, "code": text,
            "detail": {"type": "string", "description": "What happened, where, and what to do."},
            "instance": {"type": "string", "description": "Address that was called."},
            "problems": {
                "type": "array", "description": "What is wrong with single fields or settings, by dotted name.",
                "items": {"type": "object", "properties": {"path": text, "message": text}, "required": ["path", "message"]},
            },
        },
    }  # fmt: skip
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = {"description": "What went wrong.", "content": content}
    order = {name: place for place, name in enumerate(_ORDER)}
    result["paths"] = dict(sorted(result["paths"].items(), key=lambda item: (order.get(_tag(item[1]), 99), item[0])))
    return result


def _tag(operations: dict[str, Any]) -> str:
    return str(next(iter(operations.values()))["tags"][0])
