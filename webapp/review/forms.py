"""Forms of reviewing. They validate shape; services judge and write."""

from __future__ import annotations

from typing import Any

from django import forms

from webapp.review.models import Act, Flag
from webapp.review.selectors import offered_kinds
from webapp.review.services import COMMENT_CHARS, Pointer, Wish

_MOST = 1_000_000


class FlagForm(forms.Form):
    """What is wrong, where, how bad, and what should happen."""

    subject = forms.ChoiceField(choices=Flag.Subject.choices)
    kind = forms.TypedChoiceField(coerce=int)
    severity = forms.TypedChoiceField(coerce=int, choices=Flag.Severity.choices)
    comment = forms.CharField(required=False, max_length=COMMENT_CHARS, strip=True)
    wish = forms.ChoiceField(choices=Flag.WISHES)
    weight = forms.FloatField(required=False)
    episode = forms.IntegerField(required=False, min_value=1)
    turn = forms.IntegerField(required=False, min_value=1, max_value=_MOST)  # as people count, from 1
    first_line = forms.IntegerField(required=False, min_value=1, max_value=_MOST)
    last_line = forms.IntegerField(required=False, min_value=1, max_value=_MOST)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind = self.fields["kind"]
        assert isinstance(kind, forms.ChoiceField)
        kind.choices = [(one.pk, one.label) for one in offered_kinds()]

    def pointer(self) -> Pointer:
        """Where the flag points, after validation."""
        turn = self.cleaned_data["turn"]
        return Pointer(
            episode_id=self.cleaned_data["episode"],
            turn=None if turn is None else turn - 1,
            first_line=self.cleaned_data["first_line"],
            last_line=self.cleaned_data["last_line"],
        )

    def chosen_wish(self) -> Wish:
        """What should happen, after validation. A weight without a down-weight is left behind."""
        act = self.cleaned_data["wish"]
        return Wish(act=act, weight=self.cleaned_data["weight"] if act == Act.DOWN_WEIGHT else None)

    def problem(self) -> str:
        """The first thing that is wrong, in a sentence."""
        name, errors = next(iter(self.errors.items()))
        return f"{name.replace('_', ' ').capitalize()}: {errors[0]}"


class KindForm(forms.Form):
    """Name and description of a kind of flag."""

    label = forms.CharField(max_length=80, label="Name", help_text="A few words, as reviewers will choose it.")
    description = forms.CharField(
        required=False, max_length=1000, label="Description", widget=forms.Textarea(attrs={"rows": 3}),
        help_text="When to use it.",
    )  # fmt: skip
