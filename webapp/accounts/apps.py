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
        from webapp.core.palette import Heading, Place, add_places

        signals.connect(self)
        add_places(
            Place(label="Profile", url_name="accounts:profile", words="account password theme"),
            Place(label="API tokens", url_name="accounts:tokens", words="account"),
            Place(label="People", url_name="accounts:users", words="users roles"),
            Place(label="Audit log", url_name="accounts:audit"),
            Place(
                label="Invite somebody",
                url_name="accounts:invite",
                heading=Heading.ACTIONS,
                words="people person user new",
            ),
        )
