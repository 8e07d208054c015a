"""``manage.py demo_link``: print a link that signs the first admin in, once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from webapp.accounts.services import demo_link


class Command(BaseCommand):
    """Prints the address alone on stdout, so that scripts can use it; the explanation goes to stderr."""

    help = "Print a one-time link (24 hours, one use) that signs the first admin in; creates that admin when there is none."

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the link and print it."""
        admin, address = demo_link()
        self.stderr.write(f"One-time link for {admin.username}, good for 24 hours:")
        self.stdout.write(address)
