"""Where an imported run was made."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_system_samples")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="imported_from",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
