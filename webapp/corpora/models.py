"""A corpus: where it lies, what the trainer's own loader found in it, and under which licence it is."""

from __future__ import annotations

from django.db import models

from webapp.environments.models import SandboxJob


class Corpus(SandboxJob):
    """Documents designers may be grounded in. Offered to runs once a worker has read it as a run would."""

    class Origin(models.TextChoices):
        UPLOADED = "uploaded", "uploaded"
        CHOSEN = "chosen", "chosen on this machine"
        BUILT_IN = "built_in", "built in"

    class State(models.TextChoices):
        CHECKING = "checking", "checking"
        READY = "ready", "ready"
        REFUSED = "refused", "refused"

    name = models.TextField()
    origin = models.TextField(choices=Origin.choices)
    source = models.TextField(blank=True, default="")  # what `corpus.source` of a run holds
    files = models.JSONField(default=list)  # [{"name", "bytes"}], the first FILES_LISTED
    file_count = models.IntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    licence = models.TextField(blank=True, default="")
    notes = models.TextField(blank=True, default="")
    state = models.TextField(choices=State.choices, default=State.CHECKING)
    documents = models.BigIntegerField(null=True)  # usable ones
    report = models.JSONField(default=dict)  # trainer.corpus_check.CorpusReport
    checked_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)  # not offered any more; the files go when no run names them

    class Meta:
        indexes = (models.Index(fields=["-id"], name="corpus_newest"),)
        constraints = (
            models.UniqueConstraint(
                fields=["source"], condition=models.Q(deleted_at=None) & ~models.Q(source=""), name="corpus_source_once"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def formats(self) -> list[str]:
        """File name endings without the dot, each once."""
        return sorted({str(file["name"]).rsplit(".", 1)[-1].lower() for file in self.files})
