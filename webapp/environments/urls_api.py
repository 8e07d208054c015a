"""Addresses of environments in the API."""

from __future__ import annotations

from django.urls import path

from webapp.environments import api

urlpatterns = [
    path("runs/<int:run_id>/environments/", api.Environments.as_view(), name="environments"),
    path("runs/<int:run_id>/environments/<str:key>/", api.OneEnvironment.as_view(), name="environment"),
    path("runs/<int:run_id>/environments/<str:key>/judge/<slug:act>/", api.Judge.as_view(), name="judge"),
    path("runs/<int:run_id>/candidates/", api.Candidates.as_view(), name="candidates"),
    path("runs/<int:run_id>/candidates/<str:key>/", api.OneCandidate.as_view(), name="candidate"),
    path("runs/<int:run_id>/memory/", api.Memory.as_view(), name="memory"),
    path("runs/<int:run_id>/documents/", api.Documents.as_view(), name="documents"),
    path("runs/<int:run_id>/documents/<int:document_id>/", api.OneDocument.as_view(), name="document"),
    path("runs/<int:run_id>/regret/", api.Regret.as_view(), name="regret"),
]
