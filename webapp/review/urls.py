"""Addresses of reviewing."""

from __future__ import annotations

from django.urls import path

from webapp.review import views, views_admin, views_dashboard, views_items, views_queues

app_name = "review"

urlpatterns = [
    path("", views_dashboard.overview, name="list"),
    path("flags/", views.flag_list, name="flags"),
    path("flags.csv", views_dashboard.flags_csv, name="flags_csv"),
    path("flags.jsonl", views_dashboard.flags_jsonl, name="flags_jsonl"),
    path("environments/<int:environment_id>/flags/", views.environment_flags, name="environment_flags"),
    path("environments/<int:environment_id>/flag/", views.place_flag, name="place_flag"),
    path("flags/<int:flag_id>/withdraw/", views.withdraw_flag, name="withdraw_flag"),
    path("flags/<int:flag_id>/effect/", views.put_into_effect, name="put_into_effect"),
    path("effects/<int:effect_id>/undo/", views.undo_effect, name="undo_effect"),
    path("environments/<int:environment_id>/queue/", views_queues.add_environment, name="add_environment"),
    path("queues/", views_queues.queue_list, name="queues"),
    path("queues/new/", views_queues.queue_new, name="queue_new"),
    path("queues/<int:queue_id>/", views_queues.queue_page, name="queue"),
    path("queues/<int:queue_id>/fill/", views_queues.queue_fill, name="queue_fill"),
    path("queues/<int:queue_id>/next/", views_items.queue_next, name="queue_next"),
    path("queues/<int:queue_id>/undo/", views_items.queue_undo, name="queue_undo"),
    path("queues/<int:queue_id>/unskip/", views_items.queue_unskip, name="queue_unskip"),
    path("queues/<int:queue_id>/bulk/", views_items.queue_bulk, name="queue_bulk"),
    path("queues/<int:queue_id>/labels.csv", views_queues.labels_csv, name="labels_csv"),
    path("queues/<int:queue_id>/labels.jsonl", views_queues.labels_jsonl, name="labels_jsonl"),
    path("queues/<int:queue_id>/act/<slug:act>/", views_queues.queue_act, name="queue_act"),
    path("items/<int:item_id>/", views_items.item_page, name="item"),
    path("items/<int:item_id>/claim/", views_items.item_claim, name="item_claim"),
    path("items/<int:item_id>/give/", views_items.item_give, name="item_give"),
    path("items/<int:item_id>/skip/", views_items.item_skip, name="item_skip"),
    path("kinds/", views_admin.kinds, name="kinds"),
    path("kinds/new/", views_admin.kind, name="new_kind"),
    path("kinds/<int:kind_id>/", views_admin.kind, name="kind"),
    path("kinds/<int:kind_id>/<slug:act>/", views_admin.kind_act, name="kind_act"),
]
