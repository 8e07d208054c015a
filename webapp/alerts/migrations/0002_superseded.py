"""Alerts of earlier attempts are marked, those that are there already too."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import F, OuterRef, Q, Subquery


def mark(apps: Any, schema_editor: Any) -> None:
    alerts, attempts = apps.get_model("alerts", "Alert").objects, apps.get_model("runs", "Attempt").objects
    runs = apps.get_model("runs", "Run").objects
    left = attempts.filter(run=OuterRef("run"), number=OuterRef("attempt")).values("superseded_from")[:1]
    found = alerts.annotate(left=Subquery(left)).filter(Q(rollout__gte=F("left")) | Q(rollout=-1, left__isnull=False))
    ids = list(found.values_list("pk", flat=True))
    alerts.filter(pk__in=ids).update(superseded=True)
    for run_id in set(alerts.filter(pk__in=ids).values_list("run", flat=True)):
        runs.filter(pk=run_id).update(alerts=alerts.filter(run=run_id, superseded=False).count())


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_alerts_and_webhooks"), ("runs", "0009_alert_count")]

    operations = [
        migrations.AddField("alert", "superseded", models.BooleanField(db_default=False, default=False)),
        migrations.RunPython(mark, migrations.RunPython.noop),
    ]
