"""API tokens: made, recognised, revoked. The token itself exists only in its owner's hands."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import SCOPE_ROLES, ApiToken, User
from webapp.accounts.roles import has_role

PREFIX = "spw_"  # lets secret scanners recognise one
TOKENS_A_PERSON = 50
_TOKEN_BYTES = 32
_SHOWN_CHARACTERS = 9
_USE_NOTED_EVERY = timedelta(minutes=1)


class TokenRefused(Exception):
    """The token cannot be made, or not be used; the message says why and what to do."""


def _digest(token: str) -> str:
    # 256 random bits need no salt and no slow hash: there is nothing to guess.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@transaction.atomic
def create_token(*, actor: User, name: str, scope: str, days: int) -> tuple[ApiToken, str]:
    """A new token of the actor's own, and its text, which is nowhere stored. Raises TokenRefused."""
    cleaned = " ".join(name.replace("\x00", "").split())[:80]
    if not cleaned:
        raise TokenRefused("A token needs a name; say what will use it.")
    if not has_role(actor, SCOPE_ROLES[scope]):
        raise TokenRefused(
            f"A token of scope {scope} needs the role {SCOPE_ROLES[scope].value}, which you do not have."
        )
    now = timezone.now()
    User.objects.select_for_update().get(pk=actor.pk)  # two requests at once must not both be the last that fits
    if ApiToken.objects.filter(user=actor, revoked_at=None, expires_at__gt=now).count() >= TOKENS_A_PERSON:
        raise TokenRefused(f"You have {TOKENS_A_PERSON} tokens already; revoke one that is no longer used.")
    text = PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    token = ApiToken.objects.create(
        user=actor, name=cleaned, scope=scope, digest=_digest(text), beginning=text[:_SHOWN_CHARACTERS], created_at=now,
        expires_at=now + timedelta(days=days),
    )  # fmt: skip
    record(actor=actor, action="token.created", target=token, detail={"scope": scope, "days": days})
    return token, text


@transaction.atomic
def revoke_token(*, actor: User, token_id: int) -> ApiToken:
    """End one of the actor's own tokens; it stops working with the next request. Raises TokenRefused."""
    token = ApiToken.objects.select_for_update().filter(pk=token_id, user=actor).first()
    if token is None:
        raise TokenRefused("You have no such token.")
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        record(actor=actor, action="token.revoked", target=token)
    return token


def recognise(*, text: str) -> ApiToken:
    """The usable token with this text, its owner loaded and the use noted. Raises TokenRefused."""
    token = ApiToken.objects.select_related("user").filter(digest=_digest(text)).first()
    if token is None:
        raise TokenRefused("There is no such token. Make one under “API tokens” in the menu of your account.")
    now = timezone.now()
    state = token.state_at(now)
    if state != "active":
        since = token.revoked_at if state == "revoked" else token.expires_at
        raise TokenRefused(f"The token {token.name} {_ENDED[state]} on {since:%Y-%m-%d %H:%M} UTC; make a new one.")
    if not token.user.is_active:
        raise TokenRefused("The account of this token's owner is deactivated.")
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_NOTED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    return token


_ENDED = {"revoked": "was revoked", "expired": "expired"}
