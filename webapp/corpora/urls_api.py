"""Addresses of corpora in the API."""

from __future__ import annotations

from django.urls import path

from webapp.corpora import api

urlpatterns = [
    path("corpora/", api.Corpora.as_view(), name="corpora"),
    path("corpora/choices/", api.CorpusChoices.as_view(), name="corpus_choices"),
    path("corpora/<int:corpus_id>/", api.OneCorpus.as_view(), name="corpus"),
    path("corpora/<int:corpus_id>/check/", api.CorpusCheck.as_view(), name="corpus_check"),
]
