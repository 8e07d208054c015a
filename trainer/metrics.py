"""The one table of metric names: what each means, its unit, and what its mean is weighted by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Weighting = Literal["episodes", "environments", "designs", "candidates", "hints", "tokens", "samples", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `weighting` names the units a mean is taken over; "none" for counts, times and rates."""

    name: str
    unit: str
    description: str
    weighting: Weighting = "none"


GATE_STAGES = (
    "extract", "parse", "load", "contract", "determinism", "interactivity", "not-guessable", "solvable", "audit",
)  # fmt: skip
STATUSES = (
    "won", "lost", "turn_limit", "truncated_by_env", "length", "context_full",
    "env_error", "env_timeout", "sandbox_error", "sampler_error",
)  # fmt: skip
LEARNABLE_BAND = (0.2, 0.8)  # win rates whose groups give a gradient often enough (band/learnable_share)
WIN_RATE_BINS = {
    "below_20": "below 0.2", "20_40": "in [0.2, 0.4)", "40_60": "in [0.4, 0.6]", "60_80": "in (0.6, 0.8]", "above_80": "above 0.8",
}  # fmt: skip
TIMED_PHASES = ("design", "gates", "hints", "play", "learn", "sync", "save")

_TABLE = [
    Metric("win_rate/unhinted", "reward", "Mean outcome reward of unhinted episodes.", "episodes"),
    Metric("win_rate/hinted", "reward", "Mean outcome reward of hinted episodes.", "episodes"),
    Metric(
        "win_rate/unhinted_ema",
        "reward",
        "Exponential mean of win_rate/unhinted over rollouts (0.8 of the old value, 0.2 of the new one).",
        "episodes",
    ),
    Metric("success/unhinted", "fraction", "Unhinted episodes with reward above 0.", "episodes"),
    Metric(
        "regret/mean",
        "reward",
        "Mean regret at offset 0; leaky hints count at most 0, environments without hint are left out.",
        "environments",
    ),
    Metric("regret/standard_error", "reward", "Standard error of that mean over environments."),
    Metric("regret/low", "reward", "Lower end of the 95 % interval of that mean (1.96 standard errors)."),
    Metric("regret/high", "reward", "Upper end of that interval."),
    Metric("regret/n", "environments", "Environments with a measured regret."),
    Metric("regret/share_no_hint", "fraction", "Environments at offset 0 that have no hint.", "environments"),
    Metric("designer/reward_mean", "reward", "Mean raw reward of the designs that came due.", "designs"),
    Metric("designer/anchor_mean", "fraction", "Mean anchor of the designs that came due.", "designs"),
    Metric("designer/regret_term_mean", "fraction", "Mean regret term of the designs that came due.", "designs"),
    Metric("designer/win_rate_mean", "reward", "Mean window win rate of the designs that came due.", "designs"),
    Metric("designer/faulty_share", "fraction", "Designs that came due and were faulty.", "designs"),
    Metric("designer/masked_share", "fraction", "Designs that came due and were masked.", "designs"),
    Metric("designer/weight", "factor", "Designer weight of this batch."),
    Metric("group/frac_all_won", "fraction", "Groups in which every episode was won.", "environments"),
    Metric("group/frac_all_lost", "fraction", "Groups in which no episode was won.", "environments"),
    Metric("group/frac_mixed", "fraction", "Groups with won and lost episodes.", "environments"),
    Metric("group/frac_zero_spread", "fraction", "Groups whose rewards are all equal: no gradient.", "environments"),
    Metric(
        "band/learnable_share",
        "fraction",
        "Environments with a win rate in [0.2, 0.8] in this rollout.",
        "environments",
    ),
    *(
        Metric(f"band/{name}", "fraction", f"Environments with a win rate {words} in this rollout.", "environments")
        for name, words in WIN_RATE_BINS.items()
    ),
    Metric("pool/environments", "environments", "Environments played in this rollout."),
    Metric("pool/barred", "environments", "Environments of the current set that are barred or quarantined."),
    Metric("pool/down_weighted", "environments", "Environments of the current set a person has down-weighted."),
    Metric("gates/pass_rate", "fraction", "Design attempts that passed all gates.", "candidates"),
    Metric("gates/candidates", "candidates", "Design attempts of this rollout."),
    Metric("gates/slots_filled", "fraction", "Slots that ended with an environment.", "environments"),
    Metric(
        "gates/verifiable_share",
        "fraction",
        "Accepted environments whose solution() could be replayed.",
        "environments",
    ),
    Metric("gates/audit_unreadable", "candidates", "Audit verdicts that could not be read and counted as accepted."),
    *(
        Metric(
            f"gates/pass_rate_{stage}",
            "fraction",
            f"Design attempts that reached the gate {stage} and did not fail there.",
            "candidates",
        )
        for stage in GATE_STAGES
    ),
    *(
        Metric(f"gates/rejected_{stage}", "candidates", f"Design attempts whose first failed gate was {stage}.")
        for stage in GATE_STAGES
    ),
    Metric("environment/lines_mean", "lines", "Source lines of accepted environments.", "environments"),
    Metric(
        "environment/state_variables_mean",
        "variables",
        "Hidden-state variables of accepted environments.",
        "environments",
    ),
    Metric(
        "environment/guess_rate_mean",
        "fraction",
        "Win rate of the random player on accepted environments.",
        "environments",
    ),
    Metric(
        "environment/distinct_share",
        "fraction",
        "Accepted environments whose source differs from all others of the set.",
        "environments",
    ),
    Metric(
        "diversity/vendi_share",
        "fraction",
        "Vendi score of the new set's programs over their number; similarity is the cosine of the sets of token 3-grams.",
        "environments",
    ),
    Metric(
        "diversity/vendi_recent_share",
        "fraction",
        "The same over the newest 36 environments, this set's included.",
        "environments",
    ),
    Metric("hints/ok_share", "fraction", "Environments with a hint that gives nothing away.", "hints"),
    Metric("hints/leaky_share", "fraction", "Environments whose hint gives an answer away.", "hints"),
    Metric("hints/none_share", "fraction", "Environments without hint.", "hints"),
    Metric("hints/leak_rate", "fraction", "Hints that give an answer away.", "hints"),
    Metric("hints/tries_mean", "tries", "Tries per environment.", "hints"),
    Metric("episode/turns_mean", "turns", "Turns of unhinted episodes.", "episodes"),
    Metric("episode/reply_tokens_mean", "tokens", "Sampled tokens of unhinted episodes.", "episodes"),
    Metric("episode/truncated_share", "fraction", "Unhinted episodes ended by a limit.", "episodes"),
    *(Metric(f"stop/{status}", "episodes", f"Episodes of both arms with status {status}.") for status in STATUSES),
    Metric("reward/agent_mean", "reward", "Mean reward of trained agent samples.", "samples"),
    Metric("reward/agent_std", "reward", "Standard deviation of those rewards.", "samples"),
    Metric("reward/designer_std", "reward", "Standard deviation of the raw designer rewards.", "samples"),
    Metric("advantage/agent_mean", "", "Mean advantage of agent samples.", "samples"),
    Metric("advantage/agent_std", "", "Standard deviation of these advantages.", "samples"),
    Metric("advantage/agent_abs_mean", "", "Mean absolute advantage of agent samples.", "samples"),
    Metric("advantage/agent_frac_zero", "fraction", "Agent samples with advantage 0.", "samples"),
    Metric("advantage/designer_mean", "", "Mean advantage of designer samples.", "samples"),
    Metric("advantage/designer_std", "", "Standard deviation of these advantages.", "samples"),
    Metric("advantage/designer_abs_mean", "", "Mean absolute advantage of designer samples.", "samples"),
    Metric("advantage/designer_frac_zero", "fraction", "Designer samples with advantage 0.", "samples"),
    Metric("samples/agent", "samples", "Agent samples in the batch."),
    Metric("samples/designer", "samples", "Designer samples in the batch."),
    Metric("samples/filtered_share", "fraction", "Agent samples the compact filter keeps without gradient.", "samples"),
    Metric("tokens/agent", "tokens", "Trained tokens of agent samples."),
    Metric("tokens/designer", "tokens", "Trained tokens of designer samples."),
    Metric("staleness/mean", "rollouts", "Rollouts between sampling and training.", "samples"),
    Metric("staleness/max", "rollouts", "Largest of these."),
    Metric("loss/total", "", "Loss of the update.", "samples"),
    Metric("loss/policy", "", "Clipped surrogate part of the loss.", "samples"),
    Metric("loss/kl", "nats", "KL estimate against the weights the run started from.", "samples"),
    Metric("loss/entropy", "nats", "Entropy of the policy on trained tokens.", "tokens"),
    Metric("optim/grad_norm", "", "Gradient norm before clipping."),
    Metric("optim/skipped", "updates", "1 when the update was skipped because its loss or gradient was not finite."),
    Metric("optim/lr", "", "Learning rate."),
    Metric("policy/clip_frac_low", "fraction", "Tokens clipped at the lower bound.", "tokens"),
    Metric("policy/clip_frac_high", "fraction", "Tokens clipped at the upper bound.", "tokens"),
    Metric("policy/ratio_mean", "", "Mean probability ratio, before clipping.", "tokens"),
    Metric("policy/ratio_max", "", "Largest probability ratio, before clipping."),
    Metric("sampler_gap/logp_abs_mean", "nats", "Mean |learner − sampler| log-prob on unchanged weights.", "tokens"),
    Metric("sampler_gap/logp_abs_max", "nats", "Largest of these."),
    Metric("sampler_gap/kl_k3", "nats", "KL of sampler and learner (k3 estimate).", "tokens"),
    Metric("sampler_gap/tis_frac", "fraction", "Tokens whose importance weight was capped.", "tokens"),
    Metric("learn/tokens", "tokens", "Tokens the learner went through, prompts included."),
    Metric("learn/rows", "rows", "Rows of the batch."),
    Metric("memory/records", "records", "Records in the environment memory."),
    Metric("corpus/drawn", "documents", "Documents drawn so far."),
    Metric("perf/tokens_per_s_sampled", "tokens/s", "Sampled tokens over the sampler's own time."),
    Metric("perf/tokens_per_s_trained", "tokens/s", "Tokens the learner went through over its own time."),
    Metric("perf/overhead_share", "fraction", "Share of the rollout spent outside model and environments."),
    Metric("perf/model_s", "s", "Time in sampler and learner."),
    Metric("perf/sandbox_s", "s", "Time waiting for environments."),
    Metric("perf/resident_bytes", "bytes", "Memory the trainer process holds at the end of the rollout."),
    *(Metric(f"time/{phase}", "s", f"Time of the phase {phase}.") for phase in TIMED_PHASES),
    Metric("time/rollout", "s", "Time of the whole rollout up to its checkpoint."),
]
METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
