"""Corpora as the API shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.corpora.models import Corpus
from webapp.corpora.services import LICENCE_CHARS, NAME_CHARS, NOTES_CHARS

_FIELDS = (
    "id", "name", "origin", "source", "state", "failure", "documents", "file_count", "bytes", "formats", "licence", "by", "created_at",
    "checked_at", "runs",
)  # fmt: skip


class CorpusSerializer(serializers.ModelSerializer[Corpus]):
    """A corpus. ``failure`` says why it was refused, or, in another state, why it could not be checked, or not again."""

    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)
    source = serializers.CharField(read_only=True, help_text="What corpus.source of a run holds.")  # type: ignore[assignment]
    formats = serializers.ListField(child=serializers.CharField(), read_only=True, help_text="File name endings.")
    documents = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Usable ones; null before the first check."
    )
    runs = serializers.SerializerMethodField(help_text="Runs whose settings name it, deleted ones too.")

    class Meta:
        model = Corpus
        fields = _FIELDS

    def get_runs(self, corpus: Corpus) -> int:
        """From the context's ``runs``, by source."""
        return int(self.context["runs"].get(corpus.source, 0))


class CorpusDetailSerializer(CorpusSerializer):
    """A corpus with its first files and what the trainer's loader found in it."""

    report = serializers.JSONField(
        read_only=True, help_text="documents, words, skipped by reason, places, preview of the first; empty before a check."
    )  # fmt: skip

    class Meta:
        model = Corpus
        fields = (*_FIELDS, "notes", "files", "report")


class EditedCorpusSerializer(serializers.Serializer[Any]):
    """What can be changed later; what is left out stays."""

    name = serializers.CharField(required=False, max_length=NAME_CHARS)
    licence = serializers.CharField(required=False, allow_blank=True, max_length=LICENCE_CHARS)
    notes = serializers.CharField(required=False, allow_blank=True, max_length=NOTES_CHARS)


class AboutCorpusSerializer(serializers.Serializer[Any]):
    """What people write about a new corpus; without a name it is called as its first file."""

    name = serializers.CharField(required=False, allow_blank=True, max_length=NAME_CHARS, default="")
    licence = serializers.CharField(required=False, allow_blank=True, max_length=LICENCE_CHARS, default="")
    notes = serializers.CharField(required=False, allow_blank=True, max_length=NOTES_CHARS, default="")


class UploadSerializer(AboutCorpusSerializer):
    """An upload, as multipart/form-data. The files themselves are taken in by ``incoming.IncomingFiles`` as they come."""

    files = serializers.ListField(child=serializers.FileField(), help_text="One or more files, each under this name.")


class ChosenCorpusSerializer(AboutCorpusSerializer):
    """A file or folder below the folder that SPADEWORK_CORPORA_ROOT names."""

    path = serializers.CharField(max_length=4000, help_text="Relative to that folder, as in the list of what is there.")


class ChoiceSerializer(serializers.Serializer[Any]):
    """Something that can be chosen: a file that is read, or a folder to choose whole or look into."""

    name = serializers.CharField()
    path = serializers.CharField(source="relative")
    is_folder = serializers.BooleanField()
    bytes = serializers.IntegerField(help_text="0 for folders.")
