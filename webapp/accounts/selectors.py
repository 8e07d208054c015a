"""Every read about people."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from webapp.accounts.models import ApiToken, AuditEntry, User


def list_users() -> list[User]:
    """Everybody, active ones first, then by name; groups are loaded along."""
    return list(User.objects.prefetch_related("groups").order_by("-is_active", "username"))


def audit_entries() -> QuerySet[AuditEntry]:
    """The audit log, unordered; page through it by ("-at", "-id")."""
    return AuditEntry.objects.select_related("actor")


def audit_of_user(*, user: User, limit: int) -> list[AuditEntry]:
    """The newest entries that a user caused or that are about them."""
    about = Q(object_type=User._meta.label_lower, object_id=str(user.pk))
    return list(audit_entries().filter(Q(actor=user) | about).order_by("-at", "-id")[:limit])


def tokens_of(*, user: User, limit: int) -> list[ApiToken]:
    """The person's API tokens, newest first, ended ones too."""
    return list(ApiToken.objects.filter(user=user).order_by("-id")[:limit])
