"""Addresses of corpora."""

from __future__ import annotations

from django.urls import path

from webapp.corpora import views

app_name = "corpora"

urlpatterns = [
    path("", views.corpus_list, name="list"),
    path("new/", views.corpus_new, name="new"),
    path("upload/", views.upload, name="upload"),
    path("choose/", views.choose, name="choose"),
    path("<int:corpus_id>/", views.corpus_page, name="page"),
    path("<int:corpus_id>/check/", views.corpus_check, name="check"),
    path("<int:corpus_id>/act/<slug:act>/", views.corpus_act, name="act"),
]
