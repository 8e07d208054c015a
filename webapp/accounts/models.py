"""Users, the one-time links that let them in, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models

from webapp.accounts.roles import Role, role_of


class User(AbstractUser):
    """A person. The role is a group (see roles.py); the theme is kept here so that pages paint in it at once."""

    class Theme(models.TextChoices):
        """How pages look: follow the system, or always one of the two."""

        SYSTEM = "system", "Follow the system"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    theme = models.CharField(max_length=6, choices=Theme.choices, default=Theme.SYSTEM)

    # The role once it was read (in a tuple: None is an answer too); see roles.role_of.
    role_memo: tuple[Role | None] | None = None

    REQUIRED_FIELDS: ClassVar[list[str]] = []

    @property
    def role(self) -> Role | None:
        """The strongest role, None when there is none."""
        return role_of(self)

    @property
    def state(self) -> str:
        """``invited`` (has never set a password nor signed in), ``active`` or ``deactivated``."""
        if not self.is_active:
            return "deactivated"
        if self.last_login is None and not self.has_usable_password():
            return "invited"
        return "active"


class OneTimeLink(models.Model):
    """A link that works once, until it expires. Only a digest of its token is stored."""

    class Purpose(models.TextChoices):
        """What opening the link does."""

        LOGIN = "login", "signs in"
        INVITE = "invite", "first password"
        RESET = "reset", "new password"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="links")
    purpose = models.CharField(max_length=8, choices=Purpose.choices)
    token_digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.purpose} link of {self.user_id}"

    def is_open_at(self, moment: datetime) -> bool:
        """True while the link can still be used."""
        return self.used_at is None and moment < self.expires_at


class AuditEntry(models.Model):
    """Something a person did. Written in the transaction of the act, never changed, never deleted by the product."""

    at = models.DateTimeField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    object_type = models.CharField(max_length=64, blank=True)
    object_id = models.CharField(max_length=200, blank=True)
    object_label = models.CharField(max_length=200, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["-at", "-id"], name="audit_newest_first"),
            models.Index(fields=["object_type", "object_id", "-at"], name="audit_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.object_label}"
