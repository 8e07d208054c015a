"""Reading corpora, and which runs name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.fields.json import KT
from django.http import Http404

from webapp.core.pagination import Page, keyset_page
from webapp.corpora.models import Corpus
from webapp.runs.models import Run
from webapp.runs.suggestions import Suggestion

PAGE_ROWS = 50
CHOICES_SHOWN = 200


def list_corpora(*, cursor: str = "", size: int = PAGE_ROWS) -> Page[Corpus]:
    """Newest first, without the deleted ones. Raises BadRequest for a damaged cursor."""
    rows = Corpus.objects.filter(deleted_at=None).select_related("by")
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def access_corpus(*, corpus_id: int) -> Corpus:
    """The corpus. Raises Http404 when there is none, or it was deleted."""
    corpus = Corpus.objects.select_related("by").filter(pk=corpus_id, deleted_at=None).first()
    if corpus is None:
        raise Http404(f"There is no corpus {corpus_id}.")
    return corpus


def users_of(*, corpus: Corpus) -> QuerySet[Run]:
    """Runs whose settings name the corpus, those that can still be restored too, newest first."""
    runs: QuerySet[Run] = _by_source().filter(source=corpus.source, config__corpus__enabled=True).order_by("-id")
    return runs


def run_counts(*, corpora: Sequence[Corpus]) -> dict[str, int]:
    """How many runs name each, by source."""
    wanted = _by_source().filter(source__in=[corpus.source for corpus in corpora], config__corpus__enabled=True)
    return {row["source"]: row["runs"] for row in wanted.order_by().values("source").annotate(runs=Count("pk"))}


def corpus_of_run(*, run: Run) -> Corpus | None:
    """The listed corpus the run names, None when it is not listed (any more) or the run uses none."""
    source = (run.config.get("corpus") or {}).get("source", "")
    return Corpus.objects.filter(source=source, deleted_at=None).exclude(source="").first()


def choices() -> list[Suggestion]:
    """What the start form offers for ``corpus.source``: corpora that were read and found usable."""
    rows = Corpus.objects.filter(deleted_at=None, state=Corpus.State.READY).order_by("name", "pk")[:CHOICES_SHOWN]
    return [Suggestion(value=one.source, label=f"{one.name}, {one.documents or 0:,} documents") for one in rows]


def _by_source() -> Any:  # a QuerySet[Run] with `source`, which the checker cannot name
    return Run.objects.annotate(source=KT("config__corpus__source"))
