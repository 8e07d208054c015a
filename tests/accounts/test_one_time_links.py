"""One-time links: sign-in, invitation, reset. Looking uses nothing up; using them works once."""

import hashlib
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from webapp.accounts import links, services
from webapp.accounts.models import OneTimeLink, User
from webapp.accounts.roles import Role

NEW_PASSWORD = "a new and quite long one"
pytestmark = pytest.mark.django_db


def printed_link() -> str:
    out = StringIO()
    call_command("demo_link", stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_the_command_prints_the_address_alone_and_makes_the_first_admin() -> None:
    address = printed_link()
    assert re.fullmatch(r"http://127\.0\.0\.1:8400/accounts/link/[A-Za-z0-9_-]{43}", address)
    admin = User.objects.get()
    assert (admin.username, admin.role, admin.has_usable_password()) == ("admin", Role.ADMIN, False)


def test_the_command_uses_the_existing_admin_and_never_a_deactivated_one(person: Callable[..., Any]) -> None:
    gone = person("gone", "admin")
    User.objects.filter(pk=gone.pk).update(is_active=False)
    person("admin", "viewer")
    printed_link()
    assert OneTimeLink.objects.get().user.username == "admin2"
    printed_link()
    assert {link.user.username for link in OneTimeLink.objects.all()} == {"admin2"}


def test_only_a_digest_of_the_token_is_stored() -> None:
    token = printed_link().rsplit("/", 1)[1]
    stored = OneTimeLink.objects.get()
    assert stored.token_digest == hashlib.sha256(token.encode()).hexdigest()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM accounts_onetimelink t WHERE t::text LIKE %s", [f"%{token}%"])
        assert cursor.fetchone() == (0,)


def test_looking_at_a_sign_in_link_uses_nothing_up_and_one_click_signs_in(client: Client) -> None:
    path = urlsplit(printed_link()).path
    for _ in range(3):
        assert client.get(path).status_code == 200
        assert "_auth_user_id" not in client.session
    answer = client.post(path)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/accounts/users/").status_code == 200


def test_a_used_link_is_gone_for_everybody(client: Client) -> None:
    path = urlsplit(printed_link()).path
    client.post(path)
    other = Client()
    assert other.get(path).status_code == 410
    assert other.post(path).status_code == 410
    assert "_auth_user_id" not in other.session


def test_a_link_expires_after_a_day(client: Client) -> None:
    path = urlsplit(printed_link()).path
    link = OneTimeLink.objects.get()
    assert link.expires_at - link.created_at == timedelta(hours=24)
    OneTimeLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get(path).status_code == 410
    assert client.post(path).status_code == 410


def test_a_newer_link_replaces_the_older_one(client: Client) -> None:
    first, second = (urlsplit(printed_link()).path for _ in range(2))
    assert client.get(first).status_code == 410
    assert client.get(second).status_code == 200


def test_a_link_that_never_existed_looks_like_a_used_one(client: Client) -> None:
    assert client.get("/accounts/link/" + "A" * 43).status_code == 410
    assert client.get("/accounts/link/%F0%9F").status_code in (404, 410)


@pytest.mark.django_db(transaction=True)
def test_of_many_simultaneous_uses_exactly_one_succeeds() -> None:
    token = printed_link().rsplit("/", 1)[1]
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def use() -> None:
        barrier.wait(timeout=10)
        try:
            services.sign_in_by_link(token=token)
            outcomes.append("in")
        except links.LinkNotUsable:
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(outcomes) == ["in"] + ["refused"] * 5


def test_an_invited_person_chooses_a_password_and_is_signed_in_with_their_role(
    client: Client, person: Callable[..., Any]
) -> None:
    admin = person("root", "admin")
    user, address = services.invite(actor=admin, username="rita", email="", role=Role.REVIEWER)
    assert user.state == "invited"
    path = urlsplit(address).path
    page = client.get(path).content.decode()
    assert "Welcome, rita" in page
    assert "reviewer" in page
    answer = client.post(path, {"new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD})
    assert answer.status_code == 302
    rita = User.objects.get(username="rita")
    assert (rita.check_password(NEW_PASSWORD), rita.role, rita.state) == (True, Role.REVIEWER, "active")
    assert client.get("/accounts/profile/").status_code == 200
    assert Client().post(path, {"new_password1": "x", "new_password2": "x"}).status_code == 410


def test_a_bad_password_does_not_use_the_invitation_up(client: Client, person: Callable[..., Any]) -> None:
    _, address = services.invite(actor=person("root", "admin"), username="rita", email="", role=Role.VIEWER)
    path = urlsplit(address).path
    answer = client.post(path, {"new_password1": "12345", "new_password2": "12345"})
    assert answer.status_code == 200
    assert "too short" in answer.content.decode()
    assert client.get(path).status_code == 200


def test_a_reset_link_sets_the_password_ends_other_sessions_and_closes_other_links(
    person: Callable[..., Any], as_role: Callable[[str], Client]
) -> None:
    elsewhere = as_role("operator")
    user = User.objects.get(username="operator-person")
    address = services.create_password_link(actor=person("root", "admin"), user=user)
    other = links.create_link(user=user, purpose=OneTimeLink.Purpose.LOGIN, created_by=None)
    assert elsewhere.get("/accounts/profile/").status_code == 200
    answer = Client().post(urlsplit(address).path, {"new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD})
    assert answer.status_code == 302
    assert elsewhere.get("/accounts/profile/").status_code == 302
    assert Client().get(urlsplit(other).path).status_code == 410


def test_a_sign_in_link_cannot_set_a_password_and_a_password_link_cannot_just_sign_in(
    person: Callable[..., Any],
) -> None:
    user = person("ana")
    login = links.create_link(user=user, purpose=OneTimeLink.Purpose.LOGIN, created_by=None).rsplit("/", 1)[1]
    reset = links.create_link(user=user, purpose=OneTimeLink.Purpose.RESET, created_by=None).rsplit("/", 1)[1]
    with pytest.raises(links.LinkNotUsable):
        services.set_password_by_link(token=login, password=NEW_PASSWORD)
    with pytest.raises(links.LinkNotUsable):
        services.sign_in_by_link(token=reset)
    assert links.find_link(token=login).used_at is None
    assert links.find_link(token=reset).used_at is None


def test_links_of_a_deactivated_person_stop_working(client: Client, person: Callable[..., Any]) -> None:
    root, ana = person("root", "admin"), person("ana")
    address = services.create_password_link(actor=root, user=ana)
    services.deactivate(actor=root, user=ana)
    assert client.get(urlsplit(address).path).status_code == 410


def test_link_pages_are_not_stored_and_send_no_referrer_elsewhere(client: Client) -> None:
    answer = client.get(urlsplit(printed_link()).path)
    assert "no-store" in answer["Cache-Control"]
    assert answer["Referrer-Policy"] == "same-origin"
