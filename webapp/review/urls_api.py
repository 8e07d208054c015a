"""Addresses of flags and review queues in the API."""

from __future__ import annotations

from django.urls import path

from webapp.api.errors import register_error
from webapp.review import api
from webapp.review.errors import ReviewRefused

register_error(ReviewRefused, status=409, code="refused")

urlpatterns = [
    path("flag-kinds/", api.FlagKinds.as_view(), name="flag_kinds"),
    path("flags/", api.Flags.as_view(), name="flags"),
    path("flags/<int:flag_id>/", api.OneFlag.as_view(), name="flag"),
    path("flags/<int:flag_id>/withdraw/", api.FlagWithdrawal.as_view(), name="flag_withdraw"),
    path("flags/<int:flag_id>/effect/", api.FlagEffect.as_view(), name="flag_effect"),
    path("runs/<int:run_id>/environments/<str:key>/flags/", api.EnvironmentFlags.as_view(), name="environment_flags"),
    path("review-queues/", api.ReviewQueues.as_view(), name="review_queues"),
    path("review-queues/<int:queue_id>/items/", api.QueueItems.as_view(), name="queue_items"),
    path("review-queues/<int:queue_id>/labels/", api.QueueLabels.as_view(), name="queue_labels"),
]
