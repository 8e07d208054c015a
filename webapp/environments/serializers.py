"""Environments and what they come from, as the API shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.environments.models import Candidate, CorpusDocument, DesignerReward, Environment, MemoryRecord, RegretPoint

_FIELDS = (
    "id", "run", "key", "attempt", "rollout", "slot", "superseded", "skill", "class_name", "document_key", "examples",
    "counter_examples", "hint_state", "state", "state_reason", "state_rollout", "training_weight", "added_at",
)  # fmt: skip


class RegretSerializer(serializers.ModelSerializer[RegretPoint]):
    """Regret measured at offset 0; ``regret`` is null when ``state`` is no_hint or faulty."""

    class Meta:
        model = RegretPoint
        fields = (
            "id", "environment_key", "attempt", "rollout", "skill", "state", "regret", "standard_error", "unhinted_mean", "hinted_mean",
            "unhinted_n", "hinted_n", "success_share",
        )  # fmt: skip


class DesignerRewardSerializer(serializers.ModelSerializer[DesignerReward]):
    """What the designer was rewarded for an environment; ``reward`` is null when masked."""

    class Meta:
        model = DesignerReward
        fields = (
            "rollout", "variant", "win_rate", "regret", "anchor", "regret_term", "raw", "skill_mean", "weight", "environment_weight",
            "reward", "faulty", "flushed",
        )  # fmt: skip


class MeasuredSerializer(serializers.Serializer[Any]):
    """What was measured on an environment over its whole window; null where nothing was."""

    win_unhinted = serializers.FloatField(allow_null=True)
    win_hinted = serializers.FloatField(allow_null=True)
    unhinted_n = serializers.IntegerField()
    hinted_n = serializers.IntegerField()
    faults = serializers.IntegerField()
    regret = RegretSerializer(allow_null=True)
    reward = DesignerRewardSerializer(allow_null=True)


class EnvironmentRowSerializer(serializers.ModelSerializer[Environment]):
    """An environment without its texts."""

    class Meta:
        model = Environment
        fields = _FIELDS


class ListedEnvironmentSerializer(serializers.Serializer[Any]):
    """One row of the list."""

    environment = EnvironmentRowSerializer()
    measured = MeasuredSerializer()


class OffsetSerializer(serializers.Serializer[Any]):
    """Both arms of one offset of the window."""

    offset = serializers.IntegerField()
    unhinted_mean = serializers.FloatField(allow_null=True)
    unhinted_n = serializers.IntegerField()
    hinted_mean = serializers.FloatField(allow_null=True)
    hinted_n = serializers.IntegerField()
    faults = serializers.IntegerField()
    turns = serializers.FloatField(allow_null=True)
    tokens = serializers.FloatField(allow_null=True)


class EnvironmentSerializer(EnvironmentRowSerializer):
    """An environment with code, hint, gate results and statistics."""

    stages = serializers.SerializerMethodField(help_text="Verdict of each gate, in order.")
    measured = serializers.SerializerMethodField()
    offsets = serializers.SerializerMethodField()

    class Meta:
        model = Environment
        fields = (
            *_FIELDS, "code", "code_digest", "candidate_key", "sandbox_tier", "measures", "hint_text", "hint_tries", "hint_reason",
            "stages", "measured", "offsets",
        )  # fmt: skip

    def get_stages(self, environment: Environment) -> list[dict[str, Any]]:
        """As the trainer recorded them with the accepted candidate."""
        return list(environment.candidate.stages) if environment.candidate else []

    def get_measured(self, environment: Environment) -> dict[str, Any]:
        """Over the whole window."""
        return dict(MeasuredSerializer(self.context["measured"]).data)

    def get_offsets(self, environment: Environment) -> list[dict[str, Any]]:
        """By offset."""
        return list(OffsetSerializer(self.context["offsets"], many=True).data)


class CandidateRowSerializer(serializers.ModelSerializer[Candidate]):
    """A design attempt without its texts."""

    class Meta:
        model = Candidate
        fields = (
            "id", "key", "environment_key", "attempt", "rollout", "slot", "design_attempt", "skill", "document_key", "class_name",
            "accepted", "failed_stage", "reason", "prompt_tokens", "reply_tokens", "finish_reason",
        )  # fmt: skip


class CandidateSerializer(CandidateRowSerializer):
    """A design attempt: prompt, reply, code and the verdict of every gate."""

    class Meta:
        model = Candidate
        fields = (
            *CandidateRowSerializer.Meta.fields,
            "examples",
            "counter_examples",
            "prompt",
            "reply",
            "code",
            "stages",
        )


class MemorySerializer(serializers.ModelSerializer[MemoryRecord]):
    """A memory record; ``uses`` are the environments whose prompt showed it, ``removed_rollout`` null while it is there."""

    uses = serializers.SerializerMethodField()

    class Meta:
        model = MemoryRecord
        fields = (
            "id", "environment_key", "attempt", "rollout", "skill", "class_name", "snippet", "success_share", "regret", "tags",
            "removed_rollout", "removed_reason", "uses",
        )  # fmt: skip

    def get_uses(self, record: MemoryRecord) -> list[str]:
        """Keys of environments."""
        return list(self.context["uses"].get(record.environment_key, ()))


class DocumentRowSerializer(serializers.ModelSerializer[CorpusDocument]):
    """A corpus document without its text; ``seeded`` environments came of it, ``tried`` candidates."""

    seeded = serializers.IntegerField(read_only=True)
    tried = serializers.IntegerField(read_only=True)

    class Meta:
        model = CorpusDocument
        fields = ("id", "key", "title", "words", "metadata", "rollout", "seeded", "tried")


class DocumentSerializer(serializers.ModelSerializer[CorpusDocument]):
    """A corpus document as the designer saw it."""

    class Meta:
        model = CorpusDocument
        fields = ("id", "key", "title", "words", "metadata", "rollout", "text")


class AskedSerializer(serializers.Serializer[Any]):
    """What was asked of the trainer; its answer is in the run's commands under this id."""

    command = serializers.UUIDField()


class JudgementSerializer(serializers.Serializer[Any]):
    """Why an environment is judged so."""

    reason = serializers.CharField(max_length=500, help_text="Others will want to know.")
