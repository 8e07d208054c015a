"""Every write about people: each owns its transaction and its audit entry."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from webapp.accounts import links
from webapp.accounts.audit import record
from webapp.accounts.models import ApiToken, OneTimeLink, User
from webapp.accounts.roles import Role

FIRST_ADMIN_NAME = "admin"


class LastAdmin(Exception):
    """The change would leave nobody able to administer."""


class NameTaken(Exception):
    """Another person has this user name."""


def _lock_admins() -> list[int]:
    """Ids of the active admins, their changes held back until this transaction ends."""
    Group.objects.select_for_update().get(name=Role.ADMIN.value)
    return list(User.objects.filter(is_active=True, groups__name=Role.ADMIN.value).values_list("pk", flat=True))


def _refuse_to_lose_last_admin(user: User) -> None:
    if _lock_admins() == [user.pk]:
        raise LastAdmin(f"{user.username} is the only admin; make somebody else admin first")


def _give_role(user: User, role: Role) -> None:
    user.groups.remove(*Group.objects.filter(name__in=[item.value for item in Role]))
    user.groups.add(Group.objects.get(name=role.value))
    user.role_memo = None


@transaction.atomic
def demo_link() -> tuple[User, str]:
    """A one-time sign-in link for the oldest active admin, who is created when there is none. Returns (admin, address)."""
    Group.objects.select_for_update().get(name=Role.ADMIN.value)
    admins = User.objects.filter(is_active=True, groups__name=Role.ADMIN.value).order_by("pk")
    admin = admins.first()
    if admin is None:
        admin = _create_first_admin()
    address = links.create_link(user=admin, purpose=OneTimeLink.Purpose.LOGIN, created_by=None)
    record(actor=None, action="link.created", target=admin, detail={"purpose": "login"})
    return admin, address


def _create_first_admin() -> User:
    name = FIRST_ADMIN_NAME
    number = 1
    while User.objects.filter(username__iexact=name).exists():
        number += 1
        name = f"{FIRST_ADMIN_NAME}{number}"
    admin = User(username=name)
    admin.set_unusable_password()
    admin.save()
    _give_role(admin, Role.ADMIN)
    record(actor=None, action="user.created", target=admin, detail={"role": Role.ADMIN.value, "why": "no active admin"})
    return admin


@transaction.atomic
def invite(*, actor: User, username: str, email: str, role: Role) -> tuple[User, str]:
    """Create a person without a password and the link by which they set one. Returns (user, address). Raises NameTaken."""
    if User.objects.filter(username__iexact=username).exists():
        raise NameTaken(f"{username} is taken")
    user = User(username=username, email=email)
    user.set_unusable_password()
    user.save()
    _give_role(user, role)
    address = links.create_link(user=user, purpose=OneTimeLink.Purpose.INVITE, created_by=actor)
    record(actor=actor, action="user.invited", target=user, detail={"role": role.value})
    return user, address


@transaction.atomic
def create_password_link(*, actor: User, user: User) -> str:
    """A new one-time link by which ``user`` sets a password: their invitation again, or a reset. Returns its address."""
    purpose = OneTimeLink.Purpose.INVITE if user.state == "invited" else OneTimeLink.Purpose.RESET
    address = links.create_link(user=user, purpose=purpose, created_by=actor)
    record(actor=actor, action="link.created", target=user, detail={"purpose": str(purpose)})
    return address


@transaction.atomic
def set_password_by_link(*, token: str, password: str) -> User:
    """Use up an invitation or reset link and set the (already validated) password. Raises links.LinkNotUsable."""
    link = links.claim_link(token=token)
    if link.purpose == OneTimeLink.Purpose.LOGIN:
        raise links.LinkNotUsable
    user = link.user
    user.set_password(password)
    user.save(update_fields=["password"])
    links.close_links(user=user)
    record(actor=user, action="password.set", target=user, detail={"by": f"{link.purpose} link"})
    return user


@transaction.atomic
def sign_in_by_link(*, token: str) -> User:
    """Use up a sign-in link and return whose it is. Raises links.LinkNotUsable."""
    link = links.claim_link(token=token)
    if link.purpose != OneTimeLink.Purpose.LOGIN:
        raise links.LinkNotUsable
    return link.user


@transaction.atomic
def change_password(*, user: User, password: str) -> None:
    """Set one's own (already validated) password; other sessions of the user end with it."""
    user.set_password(password)
    user.save(update_fields=["password"])
    links.close_links(user=user)
    record(actor=user, action="password.set", target=user, detail={"by": "profile"})


@transaction.atomic
def set_role(*, actor: User, user: User, role: Role) -> None:
    """Give ``user`` exactly this role. Raises LastAdmin."""
    before = user.role
    if before == role:
        return
    if before == Role.ADMIN and user.is_active:
        _refuse_to_lose_last_admin(user)
    _give_role(user, role)
    record(actor=actor, action="role.changed", target=user, detail={"from": str(before or "none"), "to": role.value})


@transaction.atomic
def deactivate(*, actor: User, user: User) -> None:
    """Shut ``user`` out at once: sessions end with the next request, links and API tokens stop working. Raises LastAdmin."""
    if not user.is_active:
        return
    if user.role == Role.ADMIN:
        _refuse_to_lose_last_admin(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    user.is_active = False
    links.close_links(user=user)
    ended = ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=timezone.now())
    record(actor=actor, action="user.deactivated", target=user, detail={"tokens_revoked": ended} if ended else {})


@transaction.atomic
def reactivate(*, actor: User, user: User) -> None:
    """Let ``user`` in again with the role and password they had."""
    if user.is_active:
        return
    User.objects.filter(pk=user.pk).update(is_active=True)
    user.is_active = True
    record(actor=actor, action="user.reactivated", target=user)


def set_theme(*, user: User, theme: User.Theme) -> None:
    """Keep how pages look for this user (no audit entry: it concerns nobody else)."""
    User.objects.filter(pk=user.pk).update(theme=theme)
    user.theme = theme
