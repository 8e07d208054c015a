"""Who calls the API, by the token in its Authorization header."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from webapp.accounts.models import ApiToken, User
from webapp.accounts.services_tokens import TokenRefused, recognise
from webapp.accounts.throttles import BadTokenThrottle

_HOW = "Send it as “Authorization: Bearer spw_…”."


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer spw_…``. The request then acts as the token's owner, at most as far as its scope."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """The owner and the token; None without a token. Raises AuthenticationFailed, or Throttled after many bad ones."""
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if not scheme or scheme.lower() == "basic":  # basic: meant for a proxy in front of us
            return None
        try:
            if scheme.lower() != "bearer" or not text.strip():
                raise TokenRefused(f"This is not a token. {_HOW}")
            token = recognise(text=text.strip())
        except TokenRefused as error:
            throttle = BadTokenThrottle()
            # Only refused requests count and are held up: a good token works from the same address.
            if not throttle.allow_request(request, None):
                raise Throttled(throttle.wait(), "Too many bad tokens came from this address.") from error
            raise AuthenticationFailed(str(error)) from error
        user = token.user
        user.api_token = token
        return user, token

    def authenticate_header(self, request: Request) -> str:
        """Makes a missing token a 401 that says what is wanted."""
        return 'Bearer realm="Spadework"'
