"""How long what is kept."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0007_imported_from")]

    operations = [
        migrations.CreateModel(
            name="Retention",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("restore_days", models.IntegerField(null=True)),
                ("tensor_days", models.IntegerField(null=True)),
                ("sample_days", models.IntegerField(null=True)),
                ("keep_last", models.IntegerField(null=True)),
                ("keep_every", models.IntegerField(null=True)),
                ("keep_best", models.IntegerField(null=True)),
            ],
        ),
    ]
