"""Metrics of one rollout from its record (names: `trainer/metrics.py`). Every mean is over its own count; None where there is none."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from trainer.diversity import vendi_share
from trainer.events import CandidateJudged, EpisodeFinished, MetricsReported
from trainer.metrics import GATE_STAGES, LEARNABLE_BAND, METRICS, STATUSES, WIN_RATE_BINS
from trainer.regret import mean, population_variance
from trainer.session import Session

_Z_95 = 1.96  # half width of a 95 % interval in standard errors
_TRUNCATED = {"turn_limit", "truncated_by_env", "length", "context_full"}

Values = dict[str, float | None]


def measure_rollout(session: Session) -> MetricsReported:
    """All metrics of the rollout; every name of the table, finite or None; what is no finite number is named with what it is."""
    values: Values = dict.fromkeys(METRICS)
    for part in (_episodes, _groups, _regrets, _designs, _gates, _diversity, _hints, _performance):
        values |= part(session)
    values |= session.record.learned
    unknown = set(values) - set(METRICS)
    assert not unknown, f"metrics without an entry in the table: {sorted(unknown)}"
    return report(values)


def report(values: Values) -> MetricsReported:
    """The event of these values: the log holds finite numbers only, and says in words what was something else."""
    words = {
        name: _not_finite(value) for name, value in values.items() if value is not None and not math.isfinite(value)
    }
    return MetricsReported(
        values={name: None if name in words else value for name, value in values.items()}, not_finite=words
    )


def _not_finite(value: float) -> Literal["nan", "inf", "-inf"]:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _share(flags: Iterable[bool]) -> float | None:
    return mean([float(flag) for flag in flags])


def _spread(values: Sequence[float]) -> float | None:
    return math.sqrt(population_variance(values)) if values else None


def _rewards(episodes: Iterable[EpisodeFinished], arm: str) -> list[float]:
    return [e.reward for e in episodes if e.arm == arm and e.reward is not None]


def _kept(session: Session) -> list[EpisodeFinished]:
    """The episodes but those of environments that were quarantined since: nothing else of the rollout counts them either."""
    return [e for e in session.record.episodes if e.environment not in session.state.quarantined]


def _episodes(session: Session) -> Values:
    episodes = _kept(session)
    unhinted = [e for e in episodes if e.arm == "unhinted" and e.reward is not None]
    rewards = _rewards(episodes, "unhinted")
    stops = Counter(e.status for e in episodes)
    return {
        "win_rate/unhinted": mean(rewards),
        "win_rate/unhinted_ema": session.state.win_rate_ema,
        "win_rate/hinted": mean(_rewards(episodes, "hinted")),
        "success/unhinted": _share(r > 0 for r in rewards),
        "episode/turns_mean": mean([float(len(e.turns)) for e in unhinted]),
        "episode/reply_tokens_mean": mean([float(sum(t.reply_tokens for t in e.turns)) for e in unhinted]),
        "episode/truncated_share": _share(e.status in _TRUNCATED for e in unhinted),
        **{f"stop/{status}": float(stops[status]) for status in STATUSES},  # type: ignore[index]
    }


def _groups(session: Session) -> Values:
    groups: dict[str, list[float]] = {}
    episodes = _kept(session)
    for e in episodes:
        if e.arm == "unhinted" and e.reward is not None:
            groups.setdefault(e.environment, []).append(e.reward)
    rewards = list(groups.values())
    rates = [sum(group) / len(group) for group in rewards]
    low, high = LEARNABLE_BAND
    state = session.state
    return {
        "group/frac_all_won": _share(all(r > 0 for r in g) for g in rewards),
        "group/frac_all_lost": _share(all(r <= 0 for r in g) for g in rewards),
        "group/frac_mixed": _share(any(r > 0 for r in g) and any(r <= 0 for r in g) for g in rewards),
        "group/frac_zero_spread": _share(
            math.sqrt(population_variance(g)) < session.config.advantage.zero_spread for g in rewards
        ),
        "band/learnable_share": _share(low <= rate <= high for rate in rates),
        **{f"band/{name}": _share(_bin(rate) == name for rate in rates) for name in WIN_RATE_BINS},
        "pool/environments": float(len({e.environment for e in episodes})),
        "pool/barred": float(sum(state.is_out(e.key) for e in state.environments)),
        "pool/down_weighted": float(sum(state.training_weight(e.key) < 1 for e in state.environments)),
    }


def _bin(rate: float) -> str:
    """The bin of a win rate; the three middle ones together are the learnable band."""
    if rate < LEARNABLE_BAND[0]:
        return "below_20"
    if rate > LEARNABLE_BAND[1]:
        return "above_80"
    return "20_40" if rate < 0.4 else "40_60" if rate <= 0.6 else "60_80"


def _regrets(session: Session) -> Values:
    regrets = [r for r in session.record.regrets if r.environment not in session.state.quarantined]
    known = [r.regret for r in regrets if r.regret is not None]
    middle = mean(known)
    error = math.sqrt(population_variance(known) / (len(known) - 1)) if len(known) > 1 else None
    half = None if error is None else _Z_95 * error
    return {
        "regret/mean": middle,
        "regret/standard_error": error,
        "regret/low": None if middle is None or half is None else middle - half,
        "regret/high": None if middle is None or half is None else middle + half,
        "regret/n": float(len(known)) if regrets else None,
        "regret/share_no_hint": _share(r.state == "no_hint" for r in regrets),
    }


def _designs(session: Session) -> Values:
    scored = session.record.scored
    kept = [s for s in scored if not s.masked]
    return {
        "designer/reward_mean": mean([s.raw for s in kept]),
        "designer/anchor_mean": mean([s.anchor for s in scored if s.anchor is not None]),
        "designer/regret_term_mean": mean([s.regret_term for s in scored if s.regret_term is not None]),
        "designer/win_rate_mean": mean([s.win_rate for s in scored if s.win_rate is not None]),
        "designer/faulty_share": _share(s.faulty for s in scored),
        "designer/masked_share": _share(s.masked for s in scored),
        "designer/weight": session.record.designer_weight,
        "reward/designer_std": _spread([s.raw for s in kept]),
    }


def _gates(session: Session) -> Values:
    candidates = session.record.candidates
    if not candidates:
        return {}
    accepted = [c for c in candidates if c.accepted]
    rejected = Counter(c.failed_stage for c in candidates if not c.accepted)
    measures: dict[str, list[float]] = {}
    for candidate in accepted:
        for name, value in ((n, v) for stage in candidate.stages for n, v in stage.measures.items()):
            measures.setdefault(name, []).append(float(value))
    solvable = [stage.outcome for c in accepted for stage in c.stages if stage.stage == "solvable"]
    return {
        "gates/pass_rate": len(accepted) / len(candidates),
        "gates/candidates": float(len(candidates)),
        "gates/slots_filled": len(accepted) / session.record.slots,
        "gates/verifiable_share": _share(outcome == "passed" for outcome in solvable),
        "gates/audit_unreadable": float(session.record.unreadable_audits),
        **{f"gates/pass_rate_{stage}": _gate_pass_rate(candidates, stage) for stage in GATE_STAGES},
        **{f"gates/rejected_{stage}": float(rejected[stage]) for stage in GATE_STAGES},
        "environment/lines_mean": mean(measures.get("lines", [])),
        "environment/state_variables_mean": mean(measures.get("state_variables", [])),
        "environment/guess_rate_mean": mean(measures.get("guess_rate", [])),
        "environment/distinct_share": len({c.code for c in accepted}) / len(accepted) if accepted else None,
    }


def _gate_pass_rate(candidates: Sequence[CandidateJudged], stage: str) -> float | None:
    """Share of the attempts that reached a gate and did not fail there; what could not be verified did not fail."""
    outcomes = [s.outcome for c in candidates for s in c.stages if s.stage == stage and s.outcome != "skipped"]
    return _share(outcome != "failed" for outcome in outcomes)


def _diversity(session: Session) -> Values:
    """At a regeneration, of the new set and of the newest environments across sets."""
    if not session.record.renewed:
        return {}
    return {
        "diversity/vendi_share": vendi_share([e.code for e in session.state.environments]),
        "diversity/vendi_recent_share": vendi_share(session.state.recent_programs),
    }


def _hints(session: Session) -> Values:
    hints = session.record.hints
    return {
        "hints/ok_share": _share(h.state == "ok" for h in hints),
        "hints/leaky_share": _share(h.state == "leaky" for h in hints),
        "hints/none_share": _share(h.state == "none" for h in hints),
        "hints/leak_rate": _share(h.state == "leaky" for h in hints if h.state != "none"),
        "hints/tries_mean": mean([float(h.tries) for h in hints]),
    }


def _performance(session: Session) -> Values:
    """Times so far; `model` is sampler and learner, `sandbox` waiting for environments, the rest is ours."""
    elapsed, use = session.meter.elapsed_s, session.policy.use
    model, sandbox = use.seconds + session.model_seconds, session.pool.seconds
    trained = session.record.learned.get("learn/tokens")
    return {
        "perf/tokens_per_s_sampled": use.tokens / use.seconds if use.seconds > 0 else None,
        "perf/tokens_per_s_trained": trained / session.model_seconds if trained and session.model_seconds > 0 else None,
        "perf/overhead_share": max(0.0, 1 - (model + sandbox) / elapsed) if elapsed > 0 else None,
        "perf/model_s": model,
        "perf/sandbox_s": sandbox,
        "perf/resident_bytes": resident_bytes(),
        **{f"time/{phase}": seconds for phase, seconds in session.meter.phase_s.items()},
        "time/rollout": elapsed,
        "memory/records": float(len(session.state.memory.records)),
        "corpus/drawn": float(session.state.corpus.drawn) if session.state.corpus else None,
    }


def resident_bytes() -> float | None:
    """Memory this process holds, as the kernel counts it; None where the kernel does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
