"""Audit entries of signing in, out and being locked out."""

from __future__ import annotations

from typing import Any

from axes.signals import user_locked_out
from django.apps import AppConfig
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db.models.signals import post_migrate
from django.http import HttpRequest

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.accounts.roles import Role


def connect(config: AppConfig) -> None:
    """Connect the receivers; called once when the application starts."""
    post_migrate.connect(_keep_role_groups, sender=config, dispatch_uid="accounts.roles")
    user_logged_in.connect(_signed_in, dispatch_uid="accounts.audit")
    user_logged_out.connect(_signed_out, dispatch_uid="accounts.audit")
    user_locked_out.connect(_locked_out, dispatch_uid="accounts.audit")


def _keep_role_groups(using: str, **kwargs: Any) -> None:
    """Roles are groups by name: put a group back that somebody deleted (a flushed test database, say)."""
    for role in Role:
        Group.objects.using(using).get_or_create(name=role.value)


def _signed_in(sender: type, request: HttpRequest, user: User, **kwargs: Any) -> None:
    record(actor=user, action="session.opened", target=user, detail={"address": request.META.get("REMOTE_ADDR") or ""})


def _signed_out(sender: type, request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        record(actor=user, action="session.closed", target=user)


def _locked_out(sender: object, request: HttpRequest, username: str, ip_address: str | None, **kwargs: Any) -> None:
    record(
        actor=None,
        action="session.locked",
        label=username,
        detail={"address": ip_address or "", "until": "15 minutes after the last attempt"},
    )
