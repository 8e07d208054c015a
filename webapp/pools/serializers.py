"""Pools as the API shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.pools.models import Pool, PoolItem


class PoolSerializer(serializers.ModelSerializer[Pool]):
    """A pool. While it is built ``tested`` of ``total`` programs were judged; ready, its archive is at pool.tar."""

    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)
    environments = serializers.SerializerMethodField()

    class Meta:
        model = Pool
        fields = (
            "id", "name", "licence", "state", "failure", "tested", "total", "by", "created_at", "finished_at", "archive_bytes",
            "archive_sha256", "environments",
        )  # fmt: skip

    def get_environments(self, pool: Pool) -> int:
        """How many are in it."""
        found: int | None = getattr(pool, "environments", None)
        return pool.items.count() if found is None else found


class NewPoolSerializer(serializers.Serializer[Any]):
    """A pool to create."""

    name = serializers.CharField(max_length=120)
    licence = serializers.CharField(max_length=80, required=False, allow_blank=True, default="")


class ChosenSerializer(serializers.Serializer[Any]):
    """Environments of a run: the ones with these keys, else all that the filters let through."""

    run = serializers.IntegerField(min_value=1)
    keys = serializers.ListField(child=serializers.CharField(max_length=200), required=False, max_length=20_000)
    filters = serializers.DictField(
        child=serializers.CharField(allow_blank=True, max_length=200), default=dict,
        help_text="As the query of the list of environments: q, skill, state, flag, rollout, document.",
    )  # fmt: skip


class AddedSerializer(serializers.Serializer[Any]):
    """How many were chosen, and how many of them were not in the pool before."""

    chosen = serializers.IntegerField()
    added = serializers.IntegerField()


class PoolItemSerializer(serializers.ModelSerializer[PoolItem]):
    """An environment of a pool and the verdict of the last build; null before it."""

    run = serializers.IntegerField(source="environment.run_id", read_only=True)
    key = serializers.CharField(source="environment.key", read_only=True)
    class_name = serializers.CharField(source="environment.class_name", read_only=True)

    class Meta:
        model = PoolItem
        fields = ("id", "run", "key", "class_name", "accepted", "failed_stage", "reason")
