"""How long what is kept, as a form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.conf import settings

from webapp.runs.models import Retention

MOST_DAYS = 3650
MOST_CHECKPOINTS = 1000
MOST_EVERY = 100_000

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Retention]  # generic for the type checker only
else:
    _ModelForm = forms.ModelForm


class RetentionForm(_ModelForm):
    """Empty fields mean the default, which the help says."""

    restore_days = forms.IntegerField(
        label="Deleted runs can be restored", required=False, min_value=1, max_value=MOST_DAYS,
    )  # fmt: skip
    tensor_days = forms.IntegerField(
        label="Token files after a run’s end", required=False, min_value=1, max_value=MOST_DAYS,
        help_text="Tokens and log-probs of each turn. Empty: as long as the run. Resuming does not need them.",
    )  # fmt: skip
    sample_days = forms.IntegerField(
        label="Machine measurements after a run’s end", required=False, min_value=1, max_value=MOST_DAYS,
        help_text="The System tab. Empty: as long as the run.",
    )  # fmt: skip
    transcript_days = forms.IntegerField(
        label="Transcripts after a run’s end", required=False, min_value=1, max_value=MOST_DAYS,
        help_text="What was said in each turn. Empty: as long as the run. Token files hold the replies too; set their days as well.",
    )  # fmt: skip
    log_days = forms.IntegerField(
        label="Printed logs after a run’s end", required=False, min_value=1, max_value=MOST_DAYS,
        help_text="The Log tab. Empty: as long as the run.",
    )  # fmt: skip
    keep_last = forms.IntegerField(
        label="Newest checkpoints kept", required=False, min_value=1, max_value=MOST_CHECKPOINTS,
        help_text="checkpoint.keep_last of runs started from a preset. Empty: the preset’s own.",
    )  # fmt: skip
    keep_every = forms.IntegerField(
        label="Also every m-th checkpoint", required=False, min_value=0, max_value=MOST_EVERY,
        help_text="checkpoint.keep_every; 0 keeps none of them. Empty: the preset’s own.",
    )  # fmt: skip
    keep_best = forms.IntegerField(
        label="Also the best checkpoints", required=False, min_value=0, max_value=MOST_CHECKPOINTS,
        help_text="checkpoint.keep_best; 0 keeps none of them. Empty: the preset’s own.",
    )  # fmt: skip

    class Meta:
        model = Retention
        fields = (
            "restore_days", "tensor_days", "sample_days", "transcript_days", "log_days", "keep_last", "keep_every", "keep_best",
        )  # fmt: skip

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        default = settings.SPADEWORK_RESTORE_DAYS
        self.fields["restore_days"].help_text = f"Then rows and files are removed for good. Empty: {default} days."
