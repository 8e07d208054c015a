"""The taxonomy: admins add kinds, reword and retire them. Views check the role first."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.text import slugify

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.review.errors import ReviewRefused
from webapp.review.models import FlagKind
from webapp.runs.storable import storable_text

_LABEL_CHARS = 80
_KEY_CHARS = 60


@transaction.atomic
def add_kind(*, actor: User, label: str, description: str = "") -> FlagKind:
    """A new kind at the end of the list; its key, made from the label, never changes. Raises ReviewRefused for one that is there."""
    label = _clean(label)
    key = slugify(label)[:_KEY_CHARS]
    if not key:
        raise ReviewRefused("A kind needs a name with letters in it.")
    last = FlagKind.objects.aggregate(last=Max("position"))["last"] or 0
    try:
        with transaction.atomic():
            kind = FlagKind.objects.create(
                key=key, label=label, description=storable_text(description.strip()), position=last + 1
            )
    except IntegrityError as error:
        raise ReviewRefused(f"There is a kind called {label} already, perhaps among the retired ones.") from error
    record(actor=actor, action="flag_kind.added", target=kind, detail={"key": key})
    return kind


@transaction.atomic
def reword_kind(*, actor: User, kind_id: int, label: str, description: str) -> FlagKind:
    """Another name and description; flags that have the kind keep it. Raises ReviewRefused."""
    kind = _kind(kind_id)
    old, kind.label, kind.description = kind.label, _clean(label), storable_text(description.strip())
    if not kind.label:
        raise ReviewRefused("A kind needs a name.")
    try:
        with transaction.atomic():
            kind.save(update_fields=["label", "description"])
    except IntegrityError as error:
        raise ReviewRefused(f"Another kind is called {kind.label} already.") from error
    record(actor=actor, action="flag_kind.reworded", target=kind, detail={"from": old, "to": kind.label})
    return kind


@transaction.atomic
def retire_kind(*, actor: User, kind_id: int) -> FlagKind:
    """Offer it no more. Raises ReviewRefused when it is retired already, or the last one."""
    kind = _kind(kind_id)
    if not FlagKind.objects.filter(retired_at=None).exclude(pk=kind_id).exists():
        raise ReviewRefused("The last kind cannot be retired: nothing could be flagged any more.")
    if FlagKind.objects.filter(pk=kind_id, retired_at=None).update(retired_at=timezone.now()) != 1:
        raise ReviewRefused(f"{kind.label} is retired already.")
    record(actor=actor, action="flag_kind.retired", target=kind)
    return kind


@transaction.atomic
def restore_kind(*, actor: User, kind_id: int) -> FlagKind:
    """Offer a retired kind again. Raises ReviewRefused when it is not retired."""
    kind = _kind(kind_id)
    if FlagKind.objects.filter(pk=kind_id, retired_at__isnull=False).update(retired_at=None) != 1:
        raise ReviewRefused(f"{kind.label} is not retired.")
    record(actor=actor, action="flag_kind.restored", target=kind)
    return kind


def _clean(label: str) -> str:
    return " ".join(storable_text(label).split())[:_LABEL_CHARS]


def _kind(kind_id: int) -> FlagKind:
    kind = FlagKind.objects.filter(pk=kind_id).first()
    if kind is None:
        raise ReviewRefused("There is no such kind.")
    return kind
