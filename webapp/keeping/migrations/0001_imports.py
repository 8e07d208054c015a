"""Imports asked for in the browser, and disk use of runs."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("runs", "0007_imported_from"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ImportJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("touched_at", models.DateTimeField(auto_now_add=True)),
                ("lease", models.UUIDField(null=True)),
                ("leased_until", models.DateTimeField(null=True)),
                ("failure", models.TextField(blank=True, default="")),
                ("path", models.TextField()),
                ("name", models.TextField(blank=True, default="")),
                (
                    "copying",
                    models.TextField(
                        choices=[
                            ("nothing", "nothing: it stays where it is"),
                            ("records", "everything but the checkpoints"),
                            ("everything", "everything, checkpoints too"),
                        ],
                        default="nothing",
                    ),
                ),
                ("accept_damage", models.BooleanField(default=False)),
                (
                    "state",
                    models.TextField(
                        choices=[("waiting", "waiting"), ("done", "done"), ("failed", "failed")], default="waiting"
                    ),
                ),
                ("done", models.IntegerField(default=0)),
                ("total", models.IntegerField(default=0)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="runs.run"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["-id"], name="import_newest")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "waiting")),
                        fields=("path",),
                        name="one_import_of_a_path_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DiskUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("total_bytes", models.BigIntegerField()),
                ("checkpoint_bytes", models.BigIntegerField()),
                ("tensor_bytes", models.BigIntegerField()),
                ("log_bytes", models.BigIntegerField()),
                ("is_ours", models.BooleanField()),
                ("measured_at", models.DateTimeField()),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="disk_use", to="runs.run"
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["-total_bytes"], name="disk_largest")]},
        ),
    ]
