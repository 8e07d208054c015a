"""Forms of reviewing. They validate shape; services judge and write."""

from __future__ import annotations

from typing import Any

from django import forms

from webapp.core.hostile import plain
from webapp.review.models import FINE, Act, Flag
from webapp.review.selectors import offered_kinds
from webapp.review.services import COMMENT_CHARS, Pointer, Wish
from webapp.review.services_queues import MOST_REVIEWERS, RESERVATION_MINUTES, Rules
from webapp.review.services_reviews import Label
from webapp.review.signals import SIGNALS
from webapp.runs.models import Run
from webapp.runs.states import Status

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
        return first_problem(self)


def first_problem(form: forms.Form) -> str:
    """The first error of a form, with the field's name."""
    name, errors = next(iter(form.errors.items()))
    return f"{name.replace('_', ' ').capitalize()}: {errors[0]}"


class KindForm(forms.Form):
    """Name and description of a kind of flag."""

    label = forms.CharField(max_length=80, label="Name", help_text="A few words, as reviewers will choose it.")
    description = forms.CharField(
        required=False, max_length=1000, label="Description", widget=forms.Textarea(attrs={"rows": 3}),
        help_text="When to use it.",
    )  # fmt: skip


class LabelForm(forms.Form):
    """A label of a queue's item: "fine", or a kind with how bad it is and what should happen."""

    verdict = forms.ChoiceField()
    severity = forms.TypedChoiceField(coerce=int, choices=Flag.Severity.choices, required=False)
    comment = forms.CharField(required=False, max_length=COMMENT_CHARS, strip=True)
    wish = forms.ChoiceField(choices=Flag.WISHES, required=False)
    weight = forms.FloatField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        verdict = self.fields["verdict"]
        assert isinstance(verdict, forms.ChoiceField)
        verdict.choices = [(FINE, "fine"), *((str(one.pk), one.label) for one in offered_kinds())]

    def chosen_label(self) -> Label:
        """The label after validation; fine has no effect, whatever was chosen before."""
        values = self.cleaned_data
        if values["verdict"] == FINE:
            return Label(comment=values["comment"])
        act = values["wish"] or Flag.NOTE
        wish = Wish(act=act, weight=values["weight"] if act == Act.DOWN_WEIGHT else None)
        return Label(
            kind_id=int(values["verdict"]),
            severity=values["severity"] or Flag.Severity.MAJOR,
            comment=values["comment"],
            wish=wish,
        )

    def problem(self) -> str:
        """The first thing that is wrong, in a sentence."""
        return "Choose what is wrong, or fine." if "verdict" in self.errors else first_problem(self)


class QueueForm(forms.Form):
    """A queue: for which run, filled by which rules, worked on how."""

    name = forms.CharField(
        max_length=120, label="Name", initial="suspicious wins", help_text="What reviewers see it as."
    )
    run = forms.TypedChoiceField(coerce=int, label="Run", help_text="Its environments become the items.")
    skill = forms.CharField(
        required=False, max_length=200, label="Skill", help_text="Only environments of this skill; empty for all."
    )
    signals = forms.MultipleChoiceField(
        required=False, label="Signals", choices=[(signal.key, signal.label) for signal in SIGNALS],
        widget=forms.CheckboxSelectMultiple, initial=[signal.key for signal in SIGNALS],
        help_text="An environment is taken in when what it shows of these adds up. None ticked: every environment.",
    )  # fmt: skip
    threshold = forms.FloatField(
        min_value=0, max_value=100, initial=1.0, label="Least suspicion",
        help_text="Sum of weight times strength over its signals. 1 is one weak signal at full strength.",
    )  # fmt: skip
    reviewers_per_item = forms.IntegerField(
        min_value=1,
        max_value=MOST_REVIEWERS,
        initial=1,
        label="Reviewers per item",
        help_text="Two or more give an agreement.",
    )
    blind = forms.BooleanField(
        required=False,
        initial=True,
        label="Blind",
        help_text="Nobody sees others' labels of an item before all are given.",
    )
    reservation_minutes = forms.IntegerField(
        min_value=RESERVATION_MINUTES[0], max_value=RESERVATION_MINUTES[1], initial=15, label="Reservation (minutes)",
        help_text="How long an item is kept for whoever opened it.",
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        run = self.fields["run"]
        assert isinstance(run, forms.ChoiceField)
        newest = Run.objects.filter(deleted_at=None).exclude(status=Status.DRAFT).order_by("-pk")[:200]
        run.choices = [(one.pk, f"{plain(one.name)} ({one.status})") for one in newest]

    def rules(self) -> Rules:
        """The rules after validation."""
        values = self.cleaned_data
        return Rules(
            signals=tuple(values["signals"]), threshold=values["threshold"], skill=values["skill"],
            reviewers_per_item=values["reviewers_per_item"], blind=values["blind"], reservation_minutes=values["reservation_minutes"],
        )  # fmt: skip
