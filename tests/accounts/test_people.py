"""What an admin does about people, through the pages."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.accounts import services
from webapp.accounts.models import AuditEntry, User
from webapp.accounts.roles import Role, has_role

pytestmark = pytest.mark.django_db


def test_inviting_shows_the_link_once_and_lists_the_person_as_invited(as_role: Callable[[str], Client]) -> None:
    client = as_role("admin")
    answer = client.post(
        "/accounts/users/invite/", {"username": "rita", "email": "rita@example.org", "role": "reviewer"}
    )
    assert re.search(r"http://127\.0\.0\.1:8400/accounts/link/[\w-]{43}", answer.content.decode())
    rita = User.objects.get(username="rita")
    assert (rita.role, rita.email, rita.state) == (Role.REVIEWER, "rita@example.org", "invited")
    page = client.get("/accounts/users/").content.decode()
    assert "rita" in page
    assert "invited" in page
    assert "/accounts/link/" not in page
    entry = AuditEntry.objects.get(action="user.invited")
    assert (entry.actor_name, entry.object_id, entry.detail) == ("admin-person", str(rita.pk), {"role": "reviewer"})


@pytest.mark.parametrize(
    ("username", "complaint"), [("RITA", "is taken"), ("<b>x</b>", "valid username"), ("", "required")]
)
def test_a_name_that_cannot_be_used_is_explained(
    as_role: Callable[[str], Client], person: Callable[..., Any], username: str, complaint: str
) -> None:
    person("rita")
    answer = as_role("admin").post("/accounts/users/invite/", {"username": username, "role": "viewer"})
    assert complaint in answer.content.decode()
    assert "<b>x</b>" not in answer.content.decode()
    assert User.objects.count() == 2


def test_an_unknown_role_cannot_be_given(as_role: Callable[[str], Client], person: Callable[..., Any]) -> None:
    ana = person("ana")
    client = as_role("admin")
    client.post(f"/accounts/users/{ana.pk}/role/", {"role": "emperor"})
    assert User.objects.get(pk=ana.pk).role == Role.VIEWER


def test_a_role_change_replaces_the_old_role_and_works_with_the_next_request(as_role: Callable[[str], Client]) -> None:
    admin, other = as_role("admin"), as_role("operator")
    user = User.objects.get(username="operator-person")
    admin.post(f"/accounts/users/{user.pk}/role/", {"role": "admin"})
    assert other.get("/accounts/users/").status_code == 200
    admin.post(f"/accounts/users/{user.pk}/role/", {"role": "viewer"})
    assert other.get("/accounts/users/").status_code == 403
    assert list(user.groups.values_list("name", flat=True)) == ["viewer"]
    assert [entry.detail for entry in AuditEntry.objects.filter(action="role.changed").order_by("id")] == [
        {"from": "operator", "to": "admin"},
        {"from": "admin", "to": "viewer"},
    ]


def test_a_deactivated_person_is_out_with_the_next_request_and_can_be_let_in_again(
    as_role: Callable[[str], Client],
) -> None:
    admin, other = as_role("admin"), as_role("operator")
    user = User.objects.get(username="operator-person")
    assert other.get("/accounts/profile/").status_code == 200
    admin.post(f"/accounts/users/{user.pk}/deactivate/")
    assert other.get("/accounts/profile/").status_code == 302
    admin.post(f"/accounts/users/{user.pk}/reactivate/")
    assert User.objects.get(pk=user.pk).state == "active"
    assert User.objects.get(pk=user.pk).role == Role.OPERATOR


def test_the_only_admin_can_neither_step_down_nor_be_deactivated(as_role: Callable[[str], Client]) -> None:
    client = as_role("admin")
    me = User.objects.get(username="admin-person")
    for address, data in (
        (f"/accounts/users/{me.pk}/role/", {"role": "viewer"}),
        (f"/accounts/users/{me.pk}/deactivate/", {}),
    ):
        answer = client.post(address, data, follow=True)
        assert "is the only admin" in answer.content.decode()
    assert User.objects.get(pk=me.pk).role == Role.ADMIN
    assert User.objects.get(pk=me.pk).is_active


def test_one_of_two_admins_can_step_down(person: Callable[..., Any]) -> None:
    first, second = person("first", "admin"), person("second", "admin")
    services.set_role(actor=first, user=second, role=Role.VIEWER)
    with pytest.raises(services.LastAdmin, match="first is the only admin"):
        services.deactivate(actor=first, user=first)


def test_a_reset_link_is_shown_once_to_the_admin(as_role: Callable[[str], Client], person: Callable[..., Any]) -> None:
    ana = person("ana")
    answer = as_role("admin").post(f"/accounts/users/{ana.pk}/link/")
    assert "Password reset for ana" in answer.content.decode()
    assert "/accounts/link/" in answer.content.decode()


def test_roles_form_a_ladder() -> None:
    assert [role.rank for role in (Role.VIEWER, Role.REVIEWER, Role.OPERATOR, Role.ADMIN)] == [0, 1, 2, 3]


def test_a_person_without_a_role_or_with_an_unknown_one_may_nothing(person: Callable[..., Any]) -> None:
    nobody = person("nobody", "")
    assert not has_role(nobody, "viewer")
    with pytest.raises(ValueError, match="emperor"):
        has_role(nobody, "emperor")


def test_the_profile_sets_a_password_without_ending_ones_own_session(as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    new = "another long passphrase"
    wrong = client.post("/accounts/profile/", {"old_password": "no", "new_password1": new, "new_password2": new})
    assert "incorrectly" in wrong.content.decode()
    answer = client.post(
        "/accounts/profile/",
        {"old_password": "correct horse battery staple", "new_password1": new, "new_password2": new},
    )
    assert answer.status_code == 302
    assert client.get("/accounts/profile/").status_code == 200
    assert User.objects.get(username="viewer-person").check_password(new)


def test_the_theme_is_kept_and_painted_from_the_first_byte(as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    assert client.post("/accounts/theme/", {"theme": "dark"}, HTTP_X_REQUESTED_WITH="fetch").status_code == 204
    assert '<html lang="en" data-theme-choice="dark">' in client.get("/accounts/profile/").content.decode()
    assert client.post("/accounts/theme/", {"theme": "purple"}).status_code == 400
