"""Celery's side of corpora: thin launchers on the queue "default"."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from webapp.corpora import checking
from webapp.corpora.models import Corpus
from webapp.corpora.services import CHECK_TASK, remove_deleted
from webapp.corpora.storage import clear_incoming
from webapp.environments.jobs import FORGOTTEN_S, send


@shared_task  # type: ignore[untyped-decorator]
def check_corpus(corpus_id: int) -> None:
    """Read a corpus as a run would."""
    checking.check(corpus_id=corpus_id)


@shared_task  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Checks that no worker holds are sent again; what nobody needs any more is removed."""
    free = Q(leased_until=None) | Q(leased_until__lt=Now())
    old = timezone.now() - timedelta(seconds=FORGOTTEN_S)
    waiting = Corpus.objects.filter(free, state=Corpus.State.CHECKING, failure="", deleted_at=None, touched_at__lt=old)
    for corpus_id in waiting.values_list("pk", flat=True):
        send(CHECK_TASK, corpus_id)
    remove_deleted()
    clear_incoming()
