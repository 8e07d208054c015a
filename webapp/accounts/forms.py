"""Forms about people. They validate; services write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError

from webapp.accounts.models import SCOPE_ROLES, ApiToken, User
from webapp.accounts.roles import Role, has_role

if TYPE_CHECKING:
    # Generic for the type checker only; at run time Django's classes take no parameter.
    _SetPassword = SetPasswordForm[User]
    _ChangePassword = PasswordChangeForm
else:
    _SetPassword = SetPasswordForm
    _ChangePassword = PasswordChangeForm

TOKEN_DAYS = (7, 30, 90, 365)
ROLE_CHOICES = [(role.value, f"{role.value}: {role.explanation}") for role in Role]


class LoginForm(AuthenticationForm):
    """User name and password."""

    error_messages = {  # noqa: RUF012 - Django's own shape
        "invalid_login": "This name and password do not go together. Both are case-sensitive.",
        "inactive": "This account is deactivated. An admin can activate it again.",
    }


class NewPasswordForm(_SetPassword):
    """A new password, twice."""

    def __init__(self, user: User, *args: object, **kwargs: object) -> None:
        super().__init__(user, *args, **kwargs)
        self.fields["new_password1"].label = "New password"
        self.fields["new_password1"].help_text = "At least 10 characters; not a common password, not only digits."
        self.fields["new_password2"].label = "The same again"
        self.fields["new_password2"].help_text = ""


class ChangePasswordForm(_ChangePassword):
    """The old password and a new one, twice."""

    def __init__(self, user: User, *args: object, **kwargs: object) -> None:
        super().__init__(user, *args, **kwargs)
        self.fields["old_password"].label = "Present password"
        self.fields["new_password1"].label = "New password"
        self.fields["new_password1"].help_text = "At least 10 characters; not a common password, not only digits."
        self.fields["new_password2"].label = "The same again"
        self.fields["new_password2"].help_text = ""


class RoleForm(forms.Form):
    """One of the four roles."""

    role = forms.ChoiceField(choices=ROLE_CHOICES, initial=Role.VIEWER.value, label="Role", widget=forms.RadioSelect)

    def chosen_role(self) -> Role:
        """The role after validation."""
        return Role(self.cleaned_data["role"])


class InviteForm(RoleForm):
    """Whom to invite, as what."""

    username = forms.CharField(
        max_length=150,
        label="Name",
        help_text="What they sign in with and what others see.",
        validators=[UnicodeUsernameValidator()],
    )
    email = forms.EmailField(required=False, label="Email", help_text="For your own reference; nothing is sent.")
    field_order = ("username", "email", "role")

    def clean_username(self) -> str:
        """Refuse a name that differs from an existing one at most by case."""
        username: str = User.normalize_username(self.cleaned_data["username"])
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError(f"{username} is taken.")
        return username


class ThemeForm(forms.Form):
    """How pages look."""

    theme = forms.ChoiceField(choices=User.Theme.choices, label="Theme")

    def chosen_theme(self) -> User.Theme:
        """The theme after validation."""
        return User.Theme(self.cleaned_data["theme"])


class TokenForm(forms.Form):
    """A new API token: its name, what it may do, how long it holds."""

    name = forms.CharField(
        max_length=80, label="Name", help_text="What program or machine will use it; the audit log says this name."
    )
    scope = forms.ChoiceField(label="Scope", widget=forms.RadioSelect, initial=ApiToken.Scope.READ.value)
    days = forms.TypedChoiceField(
        coerce=int, label="Expires after", choices=[(days, f"{days} days") for days in TOKEN_DAYS], initial=30
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scope = self.fields["scope"]
        assert isinstance(scope, forms.ChoiceField)
        scope.choices = [
            (one.value, f"{one.value}: {one.label}") for one in ApiToken.Scope if has_role(user, SCOPE_ROLES[one])
        ]
