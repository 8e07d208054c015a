"""Episodes as the API shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.episodes.models import Episode


class EpisodeSerializer(serializers.ModelSerializer[Episode]):
    """A play without its turns; ``reward`` is null exactly for faults, never 0 for them."""

    class Meta:
        model = Episode
        fields = (
            "id", "key", "environment_key", "arm", "attempt", "rollout", "offset", "play", "seed", "status", "reward", "turns",
            "prompt_tokens", "total_tokens", "trained_tokens", "fault", "elapsed_s", "at", "superseded",
        )  # fmt: skip


class TranscriptSerializer(serializers.Serializer[Any]):
    """An episode with turns as recorded: observation, reply, action, reward, token counts."""

    episode = EpisodeSerializer()
    start = serializers.IntegerField(help_text="Number of the first turn here, from 0.")
    turns = serializers.ListField(child=serializers.JSONField())
    final_observation = serializers.CharField(help_text="What the environment said last; empty when it said nothing.")
    text_removed_at = serializers.DateTimeField(
        allow_null=True, help_text="When retention removed the text; there are no turns then. Null while it is kept."
    )
    more = serializers.BooleanField(help_text="Turns follow: ask again with a later start.")
