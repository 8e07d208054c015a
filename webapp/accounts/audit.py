"""The one way to write the audit log. Every app's services call ``record`` inside their own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.utils import timezone

from webapp.accounts.models import AuditEntry, User

_NAME_CHARACTERS = 150
_LABEL_CHARACTERS = 200


def _storable(value: Any) -> Any:
    """JSON that Postgres takes: it has no NUL in text and no lone surrogates, which hostile names may hold."""
    if isinstance(value, str):
        return value.replace("\x00", "␀").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value


def _told(person: User | None, detail: Mapping[str, Any] | None) -> dict[str, Any]:
    """The detail, with the name of the API token the person's program came with."""
    token = person.api_token if person is not None else None
    return dict(_storable({**(detail or {}), **({"token": token.name} if token is not None else {})}))


def record_each(
    *,
    actor: User | AnonymousUser | None,
    action: str,
    targets: Sequence[models.Model],
    detail: Mapping[str, Any] | None = None,
) -> None:
    """One entry for each of ``targets``, in one statement: for acts on many things at once."""
    person = actor if isinstance(actor, User) else None
    AuditEntry.objects.bulk_create(
        [
            AuditEntry(
                at=timezone.now(),
                actor=person,
                actor_name=(person.get_username() if person else "system")[:_NAME_CHARACTERS],
                action=action,
                object_type=target._meta.label_lower,
                object_id=str(target.pk),
                object_label=_storable(str(target))[:_LABEL_CHARACTERS],
                detail=_told(person, detail),
            )
            for target in targets
        ],
        batch_size=1000,
    )


def record(
    *,
    actor: User | AnonymousUser | None,
    action: str,
    target: models.Model | None = None,
    label: str = "",
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Add one entry: ``actor`` (None: the machine itself) did ``action`` ("run.stopped") to ``target``.

    ``label`` is what the log shows for the target (default: its text); ``detail`` is JSON data without secrets.
    """
    person = actor if isinstance(actor, User) else None
    return AuditEntry.objects.create(
        at=timezone.now(),
        actor=person,
        actor_name=(person.get_username() if person else "system")[:_NAME_CHARACTERS],
        action=action,
        object_type=target._meta.label_lower if target is not None else "",
        object_id=str(target.pk) if target is not None else "",
        object_label=_storable(label or (str(target) if target is not None else ""))[:_LABEL_CHARACTERS],
        detail=_told(person, detail),
    )
