"""Writes event logs as the trainer does: payloads are checked against the trainer's own models."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from trainer.events import KINDS
from trainer.rundir import RunDirectory


class EventWriter:
    """One attempt's log. ``emit`` validates; ``raw`` writes whatever it is given."""

    def __init__(self, directory: Path, attempt: int = 1) -> None:
        self.directory = RunDirectory(directory)
        self.attempt = attempt
        self.seq = 0
        self.rollout: int | None = None
        self.directory.events(attempt).mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> Path:
        return self.directory.event_file(self.attempt, self.rollout or 0)

    def raw(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        with self.path.open("ab") as file:
            file.write(data)

    def line(self, kind: str, payload: dict[str, Any], *, seq: int | None = None) -> str:
        self.seq = self.seq + 1 if seq is None else seq
        event = {"seq": self.seq, "time": time.time(), "rollout": self.rollout, "kind": kind, "payload": payload}
        return json.dumps(event) + "\n"

    def emit(self, kind: str, **payload: Any) -> None:
        KINDS[kind].model_validate(payload)
        self.raw(self.line(kind, payload))

    # The usual stories -----------------------------------------------------------------------------------------------

    def start(self, *, start_rollout: int = 0, total: int = 4) -> None:
        self.rollout = None if start_rollout == 0 else start_rollout
        self.emit(
            "run_started", attempt=self.attempt, start_rollout=start_rollout, total_rollouts=total,
            checkpoint=None if start_rollout == 0 else f"{start_rollout:06d}", pid=4242, engine={"device": "cpu"},
            versions={"python": "3.11"}, sandbox_tier="sealed",
        )  # fmt: skip
        self.emit("run_state", state="running")

    def open_rollout(self, rollout: int, *, regeneration: bool = True, offset: int = 0) -> None:
        self.rollout = rollout
        self.emit(
            "rollout_started", regeneration=regeneration, offset=offset, active_skills=["Optimization"], environments=1,
            expected_unhinted=2, expected_hinted=2,
        )  # fmt: skip

    def phase(self, phase: str, state: str = "progress", done: int = 1, total: int = 2) -> None:
        self.emit("phase", phase=phase, state=state, done=done, total=total, elapsed_s=0.5)

    def environment(self, key: str, *, code: str = "class TankEnv: ...", skill: str = "Optimization") -> None:
        slot = int(key.rsplit("-s", 1)[1])
        self.emit("document", document=f"doc-{key}", title="Tanks", text="Water flows.", words=2)
        self.emit(
            "candidate", environment=key, candidate=f"{key}-a1", slot=slot, attempt=1, skill=skill,
            document=f"doc-{key}", examples=[], counter_examples=[], prompt="Write.", reply=f"```python\n{code}\n```",
            code=code, class_name="TankEnv", prompt_tokens=10, reply_tokens=20, finish_reason="stop", accepted=True,
            failed_stage=None, stages=[{"stage": "parse", "outcome": "passed"}],
        )  # fmt: skip
        self.emit(
            "environment", environment=key, candidate=f"{key}-a1", slot=slot, skill=skill, class_name="TankEnv",
            code=code, document=f"doc-{key}", examples=[], counter_examples=[], sandbox_tier="sealed",
        )  # fmt: skip
        self.emit("hint", environment=key, state="ok", text="Go left.", tries=1, reply_tokens=3)

    def episode(self, key: str, *, arm: str = "unhinted", play: int = 0, offset: int = 0, reward: float = 1.0,
                observation: str = "You see a tank.", reply: str = "open") -> str:  # fmt: skip
        payload = self.episode_payload(
            key, arm=arm, play=play, offset=offset, reward=reward, observation=observation, reply=reply
        )
        self.emit("episode", **payload)
        return str(payload["episode"])

    @staticmethod
    def episode_payload(key: str, *, arm: str, play: int, offset: int = 0, reward: float = 1.0,
                        observation: str = "You see a tank.", reply: str = "open") -> dict[str, Any]:  # fmt: skip
        turn = {
            "observation": observation, "reply": reply, "action": reply, "reward": reward, "terminated": True,
            "observation_tokens": 5, "reply_tokens": 1,
        }  # fmt: skip
        return {
            "episode": f"{key}/o{offset}/{arm[0]}/{play:02d}", "environment": key, "arm": arm, "offset": offset,
            "play": play, "seed": 1000 + play, "status": "won" if reward > 0 else "lost", "reward": reward,
            "turns": [turn], "final_observation": "Done.", "prompt_tokens": 5, "total_tokens": 6, "trained_tokens": 1,
            "elapsed_s": 0.1,
        }  # fmt: skip

    def regret(self, key: str, value: float = 0.5) -> None:
        self.emit(
            "regret", environment=key, skill="Optimization", state="ok", regret=value, standard_error=0.1,
            unhinted_mean=0.25, hinted_mean=0.75, unhinted_n=2, hinted_n=2, success_share=0.25,
        )  # fmt: skip
        self.emit(
            "memory_added", environment=key, skill="Optimization", class_name="TankEnv", snippet="class TankEnv",
            success_share=0.25, regret=value,
        )  # fmt: skip

    def close_rollout(self, *, eta_s: float | None = 10.0, **metrics: float | None) -> None:
        assert self.rollout is not None
        self.emit("metrics", values=metrics or {"win_rate/unhinted": 0.25, "regret/mean": 0.5, "loss/total": None})
        self.emit(
            "checkpoint", name=f"{self.rollout + 1:06d}", next_rollout=self.rollout + 1, bytes=1000, elapsed_s=0.1
        )
        self.emit(
            "rollout_finished",
            elapsed_s=1.0,
            phase_s={"design": 0.5},
            tokens_sampled=100,
            tokens_trained=50,
            eta_s=eta_s,
        )

    def rollouts(self, numbers: range, *, plays: int = 2) -> None:
        """Whole rollouts, a regeneration each, with one environment and ``plays`` plays of each arm."""
        for number in numbers:
            key = f"r{number:04d}-s00"
            self.open_rollout(number)
            self.phase("design", "started")
            self.environment(key)
            for arm in ("unhinted", "hinted"):
                for play in range(plays):
                    self.episode(key, arm=arm, play=play)
            self.regret(key)
            self.close_rollout()
