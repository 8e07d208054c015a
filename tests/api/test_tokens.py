"""API tokens: shown once, stored hashed, capped by scope and by the owner's present role, ended by expiry and revocation."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

pytestmark = pytest.mark.django_db
ME = "/api/v1/me/"
ORDER = ("viewer", "reviewer", "operator", "admin")
SCOPES = ("read", "review", "control", "admin")


def made_on_the_page(client: Client, scope: str = "read") -> str:
    answer = client.post("/accounts/tokens/", {"name": "my robot", "scope": scope, "days": "30"})
    assert answer.status_code == 200
    return re.search(r'<code id="token">(spw_[A-Za-z0-9_-]{43})</code>', answer.content.decode()).group(1)


def test_a_token_made_on_the_page_works_and_is_shown_and_stored_nowhere_again(
    viewer: Client, caller: Callable[[str], Client]
) -> None:
    text = made_on_the_page(viewer)
    body = caller(text).get(ME).json()
    assert (body["username"], body["role"], body["scope"], body["token"]) == (
        "viewer-person", "viewer", "read", "my robot",
    )  # fmt: skip
    listed = viewer.get("/accounts/tokens/").content.decode()
    assert text not in listed
    assert f"{text[:9]}…" in listed
    for table in ("accounts_apitoken", "accounts_auditentry"):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", [f"%{text}%"])
            assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("role", ORDER)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_above_the_own_role_is_neither_offered_nor_taken(role: str, scope: str, as_role: Any) -> None:
    client = as_role(role)
    allowed = SCOPES.index(scope) <= ORDER.index(role)
    assert (f'value="{scope}"' in client.get("/accounts/tokens/").content.decode()) is allowed
    answer = client.post("/accounts/tokens/", {"name": "x", "scope": scope, "days": "30"})
    assert answer.status_code == (200 if allowed else 422)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("later", ["", *ORDER])
def test_a_token_acts_at_most_with_its_scope_and_with_the_role_its_owner_has_then(
    scope: str, later: str, token_for: Callable[..., str], caller: Callable[[str], Client]
) -> None:
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    text = token_for("admin", scope)
    owner = User.objects.get(username="admin-person")
    owner.groups.set(Group.objects.filter(name=later))
    answer = caller(text).get(ME)
    if not later:
        assert answer.status_code == 403
        return
    assert answer.json()["role"] == ORDER[min(SCOPES.index(scope), ORDER.index(later))]


def test_an_expired_token_is_refused_and_says_so(call_as: Callable[..., Client]) -> None:
    from webapp.accounts.models import ApiToken

    client = call_as("viewer", "read")
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = client.get(ME)
    assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json")
    assert "expired on" in answer.json()["detail"]
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_revoked_token_is_refused_and_only_its_owner_can_revoke_it(
    call_as: Callable[..., Client], viewer: Client, as_role: Callable[[str], Client]
) -> None:
    from webapp.accounts.models import ApiToken

    client = call_as("viewer", "read")
    token = ApiToken.objects.get()
    as_role("admin").post(f"/accounts/tokens/{token.pk}/revoke/")
    assert client.get(ME).status_code == 200
    viewer.post(f"/accounts/tokens/{token.pk}/revoke/")
    answer = client.get(ME)
    assert answer.status_code == 401
    assert "was revoked on" in answer.json()["detail"]


def test_deactivating_the_owner_ends_their_tokens_for_good(call_as: Callable[..., Client]) -> None:
    from webapp.accounts import services
    from webapp.accounts.models import User

    client = call_as("operator", "control")
    owner = User.objects.get()
    services.deactivate(actor=owner, user=owner)
    assert client.get(ME).status_code == 401
    services.reactivate(actor=owner, user=owner)
    assert client.get(ME).status_code == 401


@pytest.mark.parametrize(
    ("header", "words"),
    [("Bearer spw_wrong", "There is no such token"), ("Token abc", "not a token"), ("Bearer ", "not a token"),
     ("Bearer \u00ff", "There is no such token")],
)  # fmt: skip
def test_a_bad_token_is_refused_even_beside_a_good_session(header: str, words: str, viewer: Client) -> None:
    answer = viewer.get(ME, headers={"Authorization": header})
    assert answer.status_code == 401
    assert words in answer.json()["detail"]


def test_many_bad_tokens_are_held_up_and_a_good_one_from_the_same_address_is_not(
    call_as: Callable[..., Client],
) -> None:
    good = call_as("viewer", "read")
    bad = Client(headers={"Authorization": "Bearer spw_guess"})
    statuses = [bad.get(ME).status_code for _ in range(21)]
    assert statuses == [401] * 20 + [429]
    answer = bad.get(ME)
    assert int(answer["Retry-After"]) > 0
    assert answer.json()["code"] == "throttled"
    assert good.get(ME).status_code == 200


def test_each_token_has_a_limit_of_its_own(call_as: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.accounts.throttles import RequestThrottle

    monkeypatch.setattr(RequestThrottle, "THROTTLE_RATES", {"requests": "3/min"})
    first, second = call_as("viewer", "read"), call_as("operator", "read")
    assert [first.get(ME).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert second.get(ME).status_code == 200


def test_the_last_use_is_noted_to_the_minute(call_as: Callable[..., Client]) -> None:
    from webapp.accounts.models import ApiToken

    client = call_as("viewer", "read")
    assert ApiToken.objects.get().last_used_at is None
    client.get(ME)
    first = ApiToken.objects.get().last_used_at
    client.get(ME)
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=first - timedelta(minutes=2))
    client.get(ME)
    assert ApiToken.objects.get().last_used_at > first


def test_making_and_revoking_are_audited(viewer: Client) -> None:
    from webapp.accounts.models import ApiToken, AuditEntry

    made_on_the_page(viewer)
    viewer.post(f"/accounts/tokens/{ApiToken.objects.get().pk}/revoke/")
    actions = list(
        AuditEntry.objects.filter(action__startswith="token").order_by("id").values_list("action", "actor_name")
    )
    assert actions == [("token.created", "viewer-person"), ("token.revoked", "viewer-person")]


def test_a_session_serves_too_and_nobody_gets_a_401(viewer: Client) -> None:
    assert viewer.get(ME).json()["token"] is None
    answer = Client().get(ME)
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["detail"]


def test_what_is_not_there_is_a_problem_in_json_too(viewer: Client) -> None:
    answer = viewer.get("/api/v1/nothing/")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert answer.json()["instance"] == "/api/v1/nothing/"


def test_a_token_opens_no_page(call_as: Callable[..., Client]) -> None:
    assert call_as("admin", "admin").get("/accounts/users/").status_code == 302


def test_with_the_counter_away_requests_are_answered(
    call_as: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.exceptions import ConnectionError as Away

    from webapp.accounts.throttles import RequestThrottle

    class Gone:
        def get(self, *_: Any) -> Any:
            raise Away("refused")

    monkeypatch.setattr(RequestThrottle, "cache", Gone())
    assert call_as("viewer", "read").get(ME).status_code == 200
