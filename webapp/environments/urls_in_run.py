"""Addresses inside a run; included by ``webapp.runs.urls`` (names join the namespace "runs")."""

from __future__ import annotations

from django.urls import path

from webapp.environments import views, views_lineage, views_play, views_signals, views_sources, views_variants

urlpatterns = [
    path("environments/", views.environment_list, name="environments"),
    path("environments/<str:key>/", views.environment_page, name="environment"),
    path("environments/<str:key>/code.py", views.environment_code, name="environment_code"),
    path("environments/<str:key>/act/<slug:act>/", views.environment_judge, name="environment_judge"),
    path("environments/<str:key>/lineage/", views_lineage.lineage, name="lineage"),
    path("environments/<str:key>/diff/", views_lineage.diff, name="environment_diff"),
    path("environments/<str:key>/play/", views_play.play_new, name="play_new"),
    path("environments/<str:key>/gates/", views_variants.gate_runs, name="gate_runs"),
    path("environments/<str:key>/gates/rerun/", views_variants.gates_rerun, name="gates_rerun"),
    path("environments/<str:key>/variants/new/", views_variants.variant_new, name="variant_new"),
    path("environments/<str:key>/variants/<int:number>/", views_variants.variant, name="variant"),
    path("play/<int:session_id>/", views_play.play, name="play"),
    path("play/<int:session_id>/board/", views_play.play_board, name="play_board"),
    path("play/<int:session_id>/beside/<int:episode_id>/", views_play.play_beside, name="play_beside"),
    path("play/<int:session_id>/act/", views_play.play_act, name="play_act"),
    path("candidates/", views.candidate_list, name="candidates"),
    path("candidates/<str:key>/", views.candidate_page, name="candidate"),
    path("signals/", views_signals.signals, name="signals"),
    path("rewards/", views_signals.rewards, name="rewards"),
    path("ledger/", views_signals.ledger, name="ledger"),
    path("memory/", views_sources.memory, name="memory"),
    path("corpus/", views_sources.corpus, name="corpus"),
    path("corpus/<int:document_id>/", views_sources.document, name="document"),
    path("regret/", views_sources.regret, name="regret"),
    path("regret/series/", views_sources.regret_series, name="regret_series"),
]
