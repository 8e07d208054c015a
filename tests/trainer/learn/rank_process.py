"""One rank of `test_ranks.py`: `python -m tests.trainer.learn.rank_process MODEL_DIRECTORY OUTPUT_DIRECTORY RANK RANKS`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from tests.trainer.learn.test_plain_learner import random_rows
from trainer.config import LossConfig, OptimConfig
from trainer.learn.packed import register_packed_attention
from trainer.learn.plain import PlainLearner
from trainer.learn.ranks import DistributedRanks, Ranks
from trainer.weights import load_model

LOSS = LossConfig(kl_coef=0.02)
OPTIM = OptimConfig(learning_rate=1e-3, minibatches=2, epochs=2, micro_batch_tokens=90)


def two_updates(directory: Path, ranks: Ranks | None) -> dict[str, Any]:
    """Metrics, last gradient and weights of two updates in float64."""
    attention = register_packed_attention()
    model, reference = (load_model(directory, dtype=torch.float64, device="cpu", attention=attention) for _ in range(2))
    learner = PlainLearner(model, None, loss=LOSS, optim=OPTIM, seed=5, reference=reference, ranks=ranks)
    metrics = [dict(learner.update(random_rows(seed=seed), rollout=4)) for seed in (0, 1)]
    # One row only: the other rank has nothing to do and must still take part.
    metrics.append(dict(learner.update(random_rows(seed=2)[1:2], rollout=4)))
    return {
        "metrics": metrics,
        "gradient": {name: parameter.grad for name, parameter in model.named_parameters()},
        "weights": dict(learner.weights()),
        "rows_seen": sum(len(pack.pack.bounds) - 1 for pack in learner._packs(random_rows(), 4)),
    }


def main() -> None:
    directory, output, rank, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{output}/meeting", rank=rank, world_size=ranks)
    torch.save(two_updates(directory, DistributedRanks()), output / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
