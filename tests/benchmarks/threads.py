"""What a busy neighbour costs the built-in sampler, and which thread count is chosen beside it: `python -m tests.benchmarks.threads`.

The neighbour takes half a core: it computes for 5 ms and sleeps for 5 ms. Rates are new tokens per wall second of 32 sequences, alone and
beside it in turns; only an idle machine shows them well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.rollout.openmp import wait_passively

wait_passively()  # as the trainer does, before torch is there

import torch  # noqa: E402

from tests.benchmarks.engines import make_model, prompts  # noqa: E402
from trainer.rollout.builtin import BuiltinSampler  # noqa: E402
from trainer.rollout.engine import SampleRequest  # noqa: E402
from trainer.rollout.threads import choose_threads, thread_candidates  # noqa: E402

ROUNDS = 3
ASKED = 0.5  # half a core of two is a quarter of the machine: less than half of the speed left is a collapse
_NEIGHBOUR = """
import time
while True:
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end:
        pass
    time.sleep(0.005)
"""


@contextmanager
def neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _NEIGHBOUR])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def rate(sampler: BuiltinSampler, threads: int) -> float:
    torch.set_num_threads(threads)
    sampler._prefixes.clear()
    requests = [SampleRequest(p, 40, 1.0, i, ()) for i, p in enumerate(prompts(32, 64, 4096))]
    started = time.perf_counter()
    sampler.generate(requests)
    return 40 * 32 / (time.perf_counter() - started)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), "medium")
        sampler = BuiltinSampler.from_directory(
            Path(folder), dtype="fp32", device="cpu", threads=1, context_tokens=512, max_batch=32
        )
    rate(sampler, 1)
    counts = thread_candidates()
    alone: dict[int, list[float]] = {count: [] for count in counts}
    beside: dict[int, list[float]] = {count: [] for count in counts}
    chosen: dict[str, list[int]] = {"alone": [], "beside it": []}
    for _ in range(ROUNDS):
        chosen["alone"].append(choose_threads(counts))
        for count in counts:
            alone[count].append(rate(sampler, count))
        with neighbour():
            chosen["beside it"].append(choose_threads(counts))
            for count in counts:
                beside[count].append(rate(sampler, count))
    print(f"{'threads':>8}{'alone, tok/s':>16}{'beside it, tok/s':>18}{'left':>8}{'asked':>8}")
    for count in counts:
        left = statistics.median(b / a for a, b in zip(alone[count], beside[count], strict=True))
        print(
            f"{count:8}{statistics.median(alone[count]):16.0f}{statistics.median(beside[count]):18.0f}{left:8.2f}{ASKED:8.2f}"
        )
    for when, counts_chosen in chosen.items():
        print(f"chosen {when}: {', '.join(map(str, counts_chosen))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
