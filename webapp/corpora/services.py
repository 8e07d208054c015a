"""What people do with corpora. Each function owns its transaction and its audit entry; views check the role first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.corpora import storage
from webapp.corpora.incoming import IncomingFile
from webapp.corpora.models import Corpus
from webapp.corpora.selectors import users_of
from webapp.environments.jobs import send
from webapp.runs.errors import ActRefused
from webapp.runs.storable import storable_text

log = logging.getLogger(__name__)

CHECK_TASK = "webapp.corpora.tasks.check_corpus"
FILES_LISTED = 200
NAME_CHARS = 120
LICENCE_CHARS = 120
NOTES_CHARS = 5000
#: A run may just be being made from a form that still offered the corpus.
KEPT_AFTER_DELETE = timedelta(hours=1)


def add_upload(
    *, actor: User, files: Sequence[IncomingFile], name: str = "", licence: str = "", notes: str = ""
) -> Corpus:
    """Keep uploaded files as a corpus and have a worker check it. Raises ActRefused; then nothing is kept."""
    if not files:
        raise ActRefused("No file was chosen; choose at least one.")
    folder: Path | None = None
    try:
        with transaction.atomic():
            corpus = Corpus.objects.create(
                by=actor, origin=Corpus.Origin.UPLOADED, name=_line(name, NAME_CHARS) or _line(Path(files[0].name or "").stem, NAME_CHARS),
                licence=_line(licence, LICENCE_CHARS), notes=storable_text(notes)[:NOTES_CHARS],
            )  # fmt: skip
            folder = storage.folder_of(corpus.pk)
            folder.mkdir(parents=True)
            taken: set[str] = set()
            named = [(file, storage.safe_name(file.name or "", taken)) for file in files]
            for file, own in named:
                file.path.rename(folder / own)
            corpus.source = str(folder / named[0][1] if len(named) == 1 else folder)
            _note_files(corpus, [(own, file.size or 0) for file, own in named])
            detail = {"files": [own for _, own in named][:20], "bytes": corpus.bytes}
            _created(actor, corpus, "corpus.uploaded", detail)
    except BaseException:
        if folder is not None and folder.exists():
            storage.remove_upload(int(folder.name))
        raise
    return corpus


@transaction.atomic
def choose_corpus(*, actor: User, relative: str, name: str = "", licence: str = "", notes: str = "") -> Corpus:
    """List a file or folder below the root as a corpus and have a worker check it. Its files stay where they are. Raises ActRefused."""
    path = storage.inside_root(relative)
    files = storage.files_in(path)
    if Corpus.objects.filter(source=str(path), deleted_at=None).exists():
        raise ActRefused(f"{path.name} is listed already.")
    corpus = Corpus(
        by=actor, origin=Corpus.Origin.CHOSEN, source=str(path), name=_line(name, NAME_CHARS) or _line(path.stem, NAME_CHARS),
        licence=_line(licence, LICENCE_CHARS), notes=storable_text(notes)[:NOTES_CHARS],
    )  # fmt: skip
    _note_files(corpus, files)
    _created(actor, corpus, "corpus.chosen", {"source": corpus.source, "bytes": corpus.bytes})
    return corpus


@transaction.atomic
def edit_corpus(*, actor: User, corpus_id: int, name: str, licence: str, notes: str) -> Corpus:
    """Change what people wrote about it. Raises ActRefused."""
    corpus = _locked(corpus_id)
    if not _line(name, NAME_CHARS):
        raise ActRefused("A corpus needs a name; type one.")
    corpus.name, corpus.licence = _line(name, NAME_CHARS), _line(licence, LICENCE_CHARS)
    corpus.notes = storable_text(notes)[:NOTES_CHARS]
    corpus.save(update_fields=["name", "licence", "notes"])
    record(actor=actor, action="corpus.edited", target=corpus, detail={"licence": corpus.licence})
    return corpus


@transaction.atomic
def check_again(*, actor: User, corpus_id: int) -> Corpus:
    """Have the files read once more: those of a chosen corpus may have changed. Raises ActRefused."""
    corpus = _locked(corpus_id)
    if corpus.state == Corpus.State.CHECKING and not corpus.failure:
        raise ActRefused(f"{corpus} is being checked already.")
    if corpus.origin == Corpus.Origin.UPLOADED and not storage.has_upload(corpus.pk):
        raise ActRefused("The files of this upload are gone; upload them again.")
    if corpus.origin == Corpus.Origin.CHOSEN:
        _note_files(corpus, storage.files_in(Path(corpus.source)))
    corpus.state, corpus.failure, corpus.touched_at = Corpus.State.CHECKING, "", timezone.now()
    corpus.save()
    record(actor=actor, action="corpus.checked", target=corpus)
    transaction.on_commit(partial(send, CHECK_TASK, corpus.pk))
    return corpus


@transaction.atomic
def delete_corpus(*, actor: User, corpus_id: int) -> int:
    """Take it off the list; returns how many runs still name it. An upload's files go when none does. Raises ActRefused."""
    corpus = _locked(corpus_id)
    if corpus.origin == Corpus.Origin.BUILT_IN:
        raise ActRefused(f"{corpus} is part of the product and stays.")
    users = users_of(corpus=corpus).count()
    corpus.deleted_at = timezone.now()
    corpus.save(update_fields=["deleted_at"])
    record(actor=actor, action="corpus.deleted", target=corpus, detail={"source": corpus.source, "runs": users})
    return users


def remove_deleted() -> int:
    """Remove the files of deleted uploads that no run names any more, then their rows; how many."""
    due = Corpus.objects.filter(deleted_at__lt=timezone.now() - KEPT_AFTER_DELETE)
    removed = 0
    for corpus_id in list(due.values_list("pk", flat=True)):
        with transaction.atomic():
            corpus = Corpus.objects.select_for_update(skip_locked=True).filter(pk=corpus_id).first()
            if corpus is None or users_of(corpus=corpus).exists():
                continue
            try:
                if corpus.origin == Corpus.Origin.UPLOADED:
                    storage.remove_upload(corpus.pk)
            except OSError as error:
                log.warning("corpus %s cannot be removed (%s); it is tried again", corpus.pk, error)
                continue
            record(actor=None, action="corpus.removed", target=corpus, detail={"bytes": corpus.bytes})
            corpus.delete()
            removed += 1
    return removed


def _created(actor: User, corpus: Corpus, action: str, detail: dict[str, object]) -> None:
    corpus.save()
    record(actor=actor, action=action, target=corpus, detail=detail)
    transaction.on_commit(partial(send, CHECK_TASK, corpus.pk))


def _note_files(corpus: Corpus, files: Sequence[tuple[str, int]]) -> None:
    corpus.files = [{"name": storable_text(name), "bytes": size} for name, size in files[:FILES_LISTED]]
    corpus.file_count = len(files)
    corpus.bytes = sum(size for _, size in files)


def _locked(corpus_id: int) -> Corpus:
    corpus = Corpus.objects.select_for_update().filter(pk=corpus_id, deleted_at=None).first()
    if corpus is None:
        raise ActRefused(f"There is no corpus {corpus_id}.")
    return corpus


def _line(text: str, limit: int) -> str:
    return " ".join(storable_text(text).split())[:limit]
