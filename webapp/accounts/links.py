"""One-time links: made, looked at, claimed. The token exists only in the link itself."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from webapp.accounts.models import OneTimeLink, User

_TOKEN_BYTES = 32


class LinkNotUsable(Exception):
    """The link was used, has expired, never existed, or belongs to someone deactivated. The four look alike outside."""


def _digest(token: str) -> str:
    # 256 random bits need no salt and no slow hash: there is nothing to guess.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@transaction.atomic
def create_link(*, user: User, purpose: OneTimeLink.Purpose, created_by: User | None) -> str:
    """Make a link for ``user`` and return its full address; earlier unused links of the same purpose stop working."""
    now = timezone.now()
    OneTimeLink.objects.filter(user=user, purpose=purpose, used_at__isnull=True, expires_at__gt=now).update(
        expires_at=now
    )
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    OneTimeLink.objects.create(
        user=user,
        purpose=purpose,
        token_digest=_digest(token),
        created_at=now,
        created_by=created_by,
        expires_at=now + timedelta(hours=settings.SPADEWORK_LINK_HOURS),
    )
    return f"{settings.SPADEWORK_PUBLIC_URL}{reverse('accounts:link', args=[token])}"


def find_link(*, token: str) -> OneTimeLink:
    """The open link of a token, not consumed by looking. Raises LinkNotUsable."""
    link = OneTimeLink.objects.select_related("user").filter(token_digest=_digest(token)).first()
    if link is None or not link.is_open_at(timezone.now()) or not link.user.is_active:
        raise LinkNotUsable
    return link


def claim_link(*, token: str) -> OneTimeLink:
    """Use the link up; of several simultaneous callers exactly one gets it. Raises LinkNotUsable."""
    link = find_link(token=token)
    now = timezone.now()
    changed = OneTimeLink.objects.filter(pk=link.pk, used_at__isnull=True, expires_at__gt=now).update(used_at=now)
    if changed != 1:
        raise LinkNotUsable
    return link


def close_links(*, user: User) -> None:
    """Make every unused link of a user stop working."""
    now = timezone.now()
    OneTimeLink.objects.filter(user=user, used_at__isnull=True, expires_at__gt=now).update(expires_at=now)
