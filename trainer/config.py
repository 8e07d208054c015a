"""Every setting of a run: one frozen model, validated once, stored with the run and shown on its page.

Imports nothing heavy, so the web application can build its start form from it. Each field carries its type, its range, its unit
(`json_schema_extra={"unit": …}`) and one sentence. Sources of the defaults: the SPADE paper's games setting (4B column).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.metrics import METRICS

FORMAT_VERSION = 1

SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)


def setting(default: Any, help_text: str, *, unit: str = "", **limits: Any) -> Any:
    """One setting: its default, one sentence of help, its unit ("" for none) and pydantic limits (ge, le, gt, lt, min_length)."""
    return Field(default, description=help_text, json_schema_extra={"unit": unit} if unit else None, **limits)


class Section(BaseModel):
    """A frozen group of settings that refuses names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(Section):
    path: str = setting(
        "builtin:starter", "Hugging Face model directory, or builtin:starter for the model in the repository."
    )
    dtype: Literal["fp32", "bf16"] = setting("fp32", "Number format of weights while sampling and learning.")
    context_tokens: int = setting(32768, "Longest prompt plus reply the policy sees.", unit="tokens", ge=256)
    thinking: bool = setting(
        False, "The model thinks aloud; earlier thinking is dropped and every turn becomes a training row."
    )


class ScheduleConfig(Section):
    rollouts: int = setting(
        400, "Rollouts (policy updates) in the run.", unit="rollouts", ge=1, le=999_999
    )  # six digits: names of checkpoints sort by them
    environments: int = setting(24, "Environments per regeneration.", ge=1, le=4096)
    plays: int = setting(
        16, "Unhinted episodes per environment and rollout (the group).", unit="episodes", ge=2, le=1024
    )
    hinted_plays: int = setting(
        16,
        "Hinted episodes per environment at offset 0; same seeds as the unhinted ones.",
        unit="episodes",
        ge=0,
        le=1024,
    )
    regenerate_every: int = setting(4, "Rollouts between two regenerations (k).", unit="rollouts", ge=1)
    designer_delay: int = setting(
        4, "Rollouts until a designer sample's window is complete and it is trained (d).", unit="rollouts", ge=1
    )
    skills: tuple[str, ...] = setting(SKILLS, "All skills, in rotation order.", min_length=1)
    active_skills: int = setting(3, "Skills active in one regeneration.", ge=1)


class DesignerConfig(Section):
    temperature: float = setting(0.6, "Sampling temperature of the designer.", gt=0, le=5)
    max_tokens: int = setting(16384, "Longest reply of the designer.", unit="tokens", ge=16)
    attempts: int = setting(5, "Tries per slot before it is left out of this set.", ge=1, le=100)
    train: bool = setting(True, "Train the policy on accepted designs; off freezes the designer role.")


class AgentConfig(Section):
    temperature: float = setting(0.6, "Sampling temperature of the agent.", gt=0, le=5)
    max_tokens: int = setting(8192, "Longest reply of one turn.", unit="tokens", ge=1)
    max_turns: int = setting(
        25, "Turns of one episode; an environment's own max_turns is capped at this.", unit="turns", ge=1, le=1000
    )


class HintConfig(Section):
    temperature: float = setting(0.3, "Sampling temperature of the hint call.", gt=0, le=5)
    max_tokens: int = setting(4096, "Longest hint reply.", unit="tokens", ge=1)
    tries: int = setting(3, "Tries before the environment is marked as having no hint.", ge=1, le=20)
    backoff_s: float = setting(
        1.0, "Wait before the second try of a failed call; doubled after each, up to 30 s.", unit="s", ge=0, le=60
    )


class MemoryConfig(Section):
    enabled: bool = setting(True, "Show past environments to the designer.")
    size: int = setting(200, "Records kept; the oldest leaves first.", ge=1, le=100_000)
    examples: int = setting(2, "Past environments shown in a designer prompt.", ge=0, le=20)
    counter_examples: int = setting(1, "Too easy or too hard environments named in a designer prompt.", ge=0, le=20)
    snippet_chars: int = setting(2000, "Leading characters of code a record keeps.", unit="characters", ge=1)
    band_low: float = setting(0.15, "Lowest success share of an example.", ge=0, le=1)
    band_high: float = setting(0.85, "Highest success share of an example.", ge=0, le=1)


class CorpusConfig(Section):
    enabled: bool = setting(True, "Ground every design attempt in a freshly sampled document.")
    source: str = setting(
        "builtin:demo", "JSONL, text, Markdown or Parquet file, a folder of such files, or builtin:demo."
    )
    max_words: int = setting(6000, "Documents are cut to this many words, with a note.", unit="words", ge=1)
    seed: int = setting(42, "Seed of the corpus's own generator.", ge=0)


class PoolConfig(Section):
    path: str = setting(
        "",
        "Play frozen environments of this JSONL file, folder of such files, unpacked pool of the Pools page, or builtin:demo "
        "instead of designing new ones; empty: the designer writes them.",
    )
    seed: int = setting(42, "Seed of the order in which they are drawn, without replacement.", ge=0)
    adaptive: bool = setting(
        False,
        "Draw each environment at a difficulty of its own sliding window, as RLVE does; lines carry name and difficulty.",
    )
    adaptive_accuracy: float = setting(0.9, "Share of won plays at which a window moves up.", gt=0, le=1)
    adaptive_episodes: int = setting(
        128, "Plays at a window's upper end before it may move.", unit="episodes", ge=1, le=100_000
    )
    adaptive_width: int = setting(4, "Difficulties in a window at most.", ge=1, le=1000)
    hardest: int = setting(20, "Highest difficulty a window reaches.", ge=0, le=1000)


class RewardConfig(Section):
    variant: Literal["blend", "regret", "learning_potential", "micro_lp", "solve_rate"] = setting(
        "blend", "Designer reward; blend is the paper's."
    )
    band_low: float = setting(0.4, "Lower edge of the win-rate band with full anchor.", ge=0, le=1)
    band_high: float = setting(0.6, "Upper edge of the win-rate band with full anchor.", ge=0, le=1)
    ramp: float = setting(0.25, "Distance outside the band at which the anchor reaches 0.", gt=0, le=1)
    anchor_weight: float = setting(0.6, "Weight of the anchor in the blend.", ge=0, le=10)
    regret_weight: float = setting(0.4, "Weight of the regret term in the blend.", ge=0, le=10)
    regret_scale: float = setting(0.15, "Regret at which the regret term is full.", gt=0, le=10)
    regret_floor: bool = setting(True, "Clip the regret term to [0, 1].")
    micro_lp_weight: float = setting(0.0, "Weight of the improvement inside the window (blend).", ge=0, le=10)
    micro_lp_scale: float = setting(0.10, "Improvement at which the micro-LP term is full.", gt=0, le=10)
    micro_lp_form: Literal["late_minus_early", "slope"] = setting(
        "slope", "How improvement inside the window is measured."
    )
    micro_lp_signed: bool = setting(True, "Keep negative improvement in the blend instead of flooring it at 0.")
    frontier_weight: float = setting(0.0, "Weight of the frontier term (blend).", ge=0, le=10)
    frontier_scale: float = setting(
        0.08, "Distance of win rate · (1 − win rate) from its maximum at which the frontier term is −1.", gt=0, le=10
    )
    solver_variance: bool = setting(False, "Add the solver-variance bonus to learning_potential.")
    gamma_fast: float = setting(0.98, "Decay of the fast mean (learning_potential).", gt=0, lt=1)
    gamma_slow: float = setting(0.85, "Decay of the slow mean (learning_potential).", gt=0, lt=1)
    faulty_reward: float = setting(-0.5, "Raw reward of an environment that hung or mostly faulted.", ge=-10, le=0)
    designer_weight_cap: float = setting(50.0, "Upper bound of the designer weight.", gt=0)


class AdvantageConfig(Section):
    baseline: Literal["group", "ema"] = setting("group", "Group z-score, or an EMA of each environment's mean reward.")
    ema_decay: float = setting(0.5, "Decay of the EMA baseline.", ge=0, lt=1)
    zero_spread: float = setting(1e-6, "Groups whose standard deviation is below this get advantage 0.", ge=0)


class LossConfig(Section):
    clip_low: float = setting(0.2, "Lower clip distance of the probability ratio.", gt=0, lt=1)
    clip_high: float = setting(0.28, "Upper clip distance of the probability ratio.", gt=0, le=10)
    tis_cap: float = setting(2.0, "Cap of the truncated importance weight exp(old − sampler).", gt=0)
    kl_coef: float = setting(0.0, "Weight of the KL term against the weights the run started from.", ge=0)
    entropy_coef: float = setting(0.0, "Weight of the entropy bonus.", ge=0)
    compact_filter: bool = setting(False, "Episodes that were truncated carry no gradient.")


class OptimConfig(Section):
    learning_rate: float = setting(1e-6, "Constant AdamW learning rate.", gt=0, le=1)
    beta1: float = setting(0.9, "AdamW beta 1.", ge=0, lt=1)
    beta2: float = setting(0.98, "AdamW beta 2.", ge=0, lt=1)
    weight_decay: float = setting(0.1, "AdamW weight decay.", ge=0)
    grad_clip: float = setting(1.0, "Largest gradient norm.", gt=0)
    minibatches: int = setting(1, "Optimiser steps per pass over the batch.", ge=1, le=64)
    epochs: int = setting(1, "Passes over the batch.", ge=1, le=16)
    micro_batch_tokens: int = setting(16384, "Tokens of one forward and backward pass.", unit="tokens", ge=64)
    activation_checkpointing: bool = setting(
        False, "Compute activations again in the backward pass: a third more time for much less memory."
    )


class LoraConfig(Section):
    rank: int = setting(0, "Rank of the LoRA adapters that are trained; 0 trains all weights.", ge=0, le=4096)
    alpha: float = setting(32.0, "The adapters' change is multiplied by alpha / rank.", gt=0, le=10_000)
    modules: tuple[str, ...] = setting(
        (), "Names of the linear layers that get adapters, such as q_proj; none: all but the output head."
    )


class GatesConfig(Section):
    max_guess_rate: float = setting(0.15, "Largest win rate of the random player.", ge=0, le=1)
    guess_seeds: int = setting(20, "Seeds the random player plays.", ge=1, le=1000)
    audit: bool = setting(False, "Ask the policy whether the environment has a fatal bug.")
    source_bytes: int = setting(200_000, "Largest environment source.", unit="bytes", ge=1000)


class SandboxConfig(Section):
    minimum_tier: str = setting("sealed", "Weakest isolation tier accepted; the run refuses to start below it.")
    step_timeout_s: float = setting(
        5.0, "Wall time of one step before the environment counts as hung.", unit="s", gt=0, le=600
    )
    memory_bytes: int = setting(512 * 1024**2, "Address space of one sandbox worker.", unit="bytes", ge=64 * 1024**2)


class EngineConfig(Section):
    sampler: Literal["builtin", "vllm"] = setting("builtin", "Who generates: the built-in torch sampler, or vLLM.")
    learner: Literal["plain", "deepspeed"] = setting("plain", "Who updates: plain torch, or DeepSpeed.")
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Where the built-in engines run.")
    threads: int = setting(
        0, "CPU threads of the built-in engines; 0 measures at start and keeps the choice.", ge=0, le=1024
    )
    sampler_batch: int = setting(128, "Sequences the built-in sampler decodes at once.", ge=1, le=4096)


class CheckpointConfig(Section):
    every: int = setting(1, "Rollouts between two checkpoints.", unit="rollouts", ge=1)
    keep_last: int = setting(3, "Newest checkpoints kept.", ge=1)
    keep_every: int = setting(0, "Also keep every m-th checkpoint; 0 keeps none of them.", unit="rollouts", ge=0)
    keep_best: int = setting(1, "Also keep the best checkpoints by best_metric; 0 keeps none of them.", ge=0)
    best_metric: str = setting(
        "win_rate/unhinted_ema", "Metric whose largest values are best; of equal ones the newer checkpoint is better."
    )


class RunConfig(Section):
    """All settings of one run. Contradictions raise and name both fields."""

    format_version: Literal[1] = setting(1, "Version of this settings format.")
    preset: str = setting("", "Name of the preset these settings started from.")
    description: str = setting("", "What this preset is for.")
    needs_gpu: bool = setting(False, "Refuse to start on a machine without a CUDA device.")
    environment_kind: Literal["game"] = setting("game", "What the designer writes.")
    seed: int = setting(
        0, "Seed of the run: skills, memory draws, sampling and episode seeds follow from it.", ge=0, lt=2**63
    )
    prompts: Literal["full", "compact"] = setting(
        "full", "Prompt set: full text for capable models, compact for the built-in one."
    )
    model: ModelConfig = ModelConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    designer: DesignerConfig = DesignerConfig()
    agent: AgentConfig = AgentConfig()
    hint: HintConfig = HintConfig()
    memory: MemoryConfig = MemoryConfig()
    corpus: CorpusConfig = CorpusConfig()
    pool: PoolConfig = PoolConfig()
    reward: RewardConfig = RewardConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    lora: LoraConfig = LoraConfig()
    gates: GatesConfig = GatesConfig()
    sandbox: SandboxConfig = SandboxConfig()
    engine: EngineConfig = EngineConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _no_contradictions(self) -> Self:
        schedule = self.schedule
        contradictions = (
            ("schedule.active_skills is larger than the number of schedule.skills", schedule.active_skills > len(schedule.skills)),
            ("schedule.skills names a skill twice", len(set(schedule.skills)) < len(schedule.skills)),
            ("schedule.designer_delay is shorter than schedule.regenerate_every: the window would not be complete",
             schedule.designer_delay < schedule.regenerate_every),
            ("reward.band_low is above reward.band_high", self.reward.band_low > self.reward.band_high),
            ("memory.band_low is above memory.band_high", self.memory.band_low > self.memory.band_high),
            ("designer.max_tokens does not fit model.context_tokens", self.designer.max_tokens >= self.model.context_tokens),
            ("agent.max_tokens does not fit model.context_tokens", self.agent.max_tokens >= self.model.context_tokens),
            ("hint.max_tokens does not fit model.context_tokens", self.hint.max_tokens >= self.model.context_tokens),
            (f"checkpoint.best_metric: there is no metric {self.checkpoint.best_metric!r}", self.checkpoint.best_metric not in METRICS),
            ("reward.gamma_fast must be above reward.gamma_slow", self.reward.gamma_fast <= self.reward.gamma_slow),
            ("pool.adaptive is on but pool.path names no pool", self.pool.adaptive and not self.pool.path),
            ("pool.path is set but designer.train is on: nobody designs, so there is no design to train",
             bool(self.pool.path) and self.designer.train),
            ("schedule.hinted_plays is 0 but reward.variant needs regret",
             schedule.hinted_plays == 0 and self.reward.variant in ("blend", "regret")),
        )  # fmt: skip
        problems = [problem for problem, wrong in contradictions if wrong]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but hardly meant: one sentence each, with what to set."""
        schedule = self.schedule
        if self.designer.train and schedule.environments <= schedule.active_skills:
            return (
                f"the designer learns nothing: with schedule.environments {schedule.environments} and schedule.active_skills "
                f"{schedule.active_skills} no skill has two environments, and a design's reward is its distance from the mean of its "
                "skill. Set schedule.environments to three times schedule.active_skills or more, or designer.train to false",
            )
        return ()


Settings = dict[str, Any]
SettingPath = Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")]
PRESET_DIRECTORY = Path(__file__).parent / "presets"
