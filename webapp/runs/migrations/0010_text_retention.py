"""How long transcripts and printed logs are kept, and when a run's were removed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_alert_count")]

    operations = [
        migrations.AddField("retention", "transcript_days", models.IntegerField(null=True)),
        migrations.AddField("retention", "log_days", models.IntegerField(null=True)),
        migrations.AddField("run", "text_removed_at", models.DateTimeField(null=True)),
        migrations.AddField("run", "log_removed_at", models.DateTimeField(null=True)),
    ]
