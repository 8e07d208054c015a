"""Users, the one-time links and API tokens that let them in, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
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
    # The token this request came with: it caps the role, and the audit log names it.
    api_token: ApiToken | None = None

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


class ApiToken(models.Model):
    """Lets a program act for its owner, at most as far as its scope and their present role. Only a digest is stored."""

    class Scope(models.TextChoices):
        """What a program may do; each can do all that the ones before it can."""

        READ = "read", "reads runs, environments, episodes, flags and pools, changes nothing"
        REVIEW = "review", "also flags, and fills and builds pools"
        CONTROL = "control", "also creates, starts, pauses, stops, clones and forks runs, and manages webhooks"
        ADMIN = "admin", "also reads the audit log"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the token, hex
    beginning = models.CharField(max_length=12)  # its first characters, to recognise it by
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)  # to the minute
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["user", "-id"], name="token_of_user")]

    def __str__(self) -> str:
        return f"token {self.name}"

    @property
    def role(self) -> Role:
        """The strongest role the token can act with."""
        return SCOPE_ROLES[self.scope]

    def state_at(self, moment: datetime) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if moment < self.expires_at else "expired"


SCOPE_ROLES: Mapping[str, Role] = {
    ApiToken.Scope.READ: Role.VIEWER,
    ApiToken.Scope.REVIEW: Role.REVIEWER,
    ApiToken.Scope.CONTROL: Role.OPERATOR,
    ApiToken.Scope.ADMIN: Role.ADMIN,
}


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
