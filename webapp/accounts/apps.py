"""Django application of users and roles."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users, roles, one-time links and the audit log."""

    name = "webapp.accounts"
    label = "accounts"
    verbose_name = "People"

    def ready(self) -> None:
        """Connect the audit entries of signing in, out and being locked out, and the upkeep of the role groups."""
        from webapp.accounts import signals

        signals.connect(self)
