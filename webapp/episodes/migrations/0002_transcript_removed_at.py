"""When retention removed a transcript's text."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("episodes", "0001_episode_tables")]

    operations = [migrations.AddField("transcript", "removed_at", models.DateTimeField(null=True))]
