"""Real Celery workers on the real broker, killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app

from tests.runs.processes import environment_of_tests, start_module
from trainer.config import RunConfig
from webapp.episodes.models import Episode
from webapp.runs import services
from webapp.runs.models import Attempt, Event, Run
from webapp.runs.supervision.proctree import Process, is_alive

pytestmark = pytest.mark.django_db(transaction=True)


class Workers:
    """Starts workers; at the end of the test none is left."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, queues: str) -> subprocess.Popen[bytes]:
        log = self._logs / f"worker-{len(self._started)}.log"
        ready = self._logs / f"ready-{len(self._started)}"
        arguments = ("-A", "tests.runs.worker_app", "worker", "-Q", queues, "-c", "1", "--loglevel", "INFO")
        with log.open("wb") as output:
            worker = start_module(
                "webapp.stack.worker", str(ready), *arguments, env=environment_of_tests(), stdout=output
            )
        self._started.append(worker)
        wait_for(lambda: ready.exists(), 150, log)
        return worker

    def end(self) -> None:
        for worker in self._started:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def wait_for(condition: Callable[[], bool], seconds: float, log: Path | None = None) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        text = log.read_text(errors="replace")[-3000:] if log else ""
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; {text}"
        time.sleep(0.05)


@pytest.fixture
def workers(tmp_path: Path, settings: Any) -> Iterator[Workers]:
    settings.SPADEWORK_HOME = tmp_path
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("gpu")
        broker.default_channel.queue_purge("default")
    found = Workers(tmp_path)
    yield found
    found.end()


def queued(operator: Any, **script: Any) -> Run:
    config = RunConfig(description=json.dumps({"rollouts": 3, **script}))
    run = services.create_run(actor=operator, name="fake", config=config)
    return services.start_run(actor=operator, run_id=run.pk)


def status_is(run: Run, *wanted: str) -> Callable[[], bool]:
    return lambda: Run.objects.get(pk=run.pk).status in wanted


def under_way(run: Run) -> Callable[[], bool]:
    return lambda: Run.objects.get(pk=run.pk).rollouts_done >= 1


def trainer_of(run: Run) -> Process:
    attempt = Attempt.objects.filter(run=run).latest("number")
    assert attempt.pid is not None
    assert attempt.process_started is not None
    return Process(attempt.pid, attempt.process_started)


def test_a_worker_trains_what_is_queued_one_after_the_other(operator: Any, workers: Workers) -> None:
    workers.start("gpu")
    runs = [queued(operator), queued(operator)]
    wait_for(lambda: all(status_is(run, "completed")() for run in runs), 150)
    first, second = (Run.objects.get(pk=run.pk) for run in runs)
    assert first.finished_at is not None
    assert second.started_at is not None
    assert second.started_at >= first.finished_at


def test_a_killed_worker_takes_its_trainer_along_and_the_run_is_lost_then_resumed(
    operator: Any, workers: Workers
) -> None:
    gpu = workers.start("gpu")
    run = queued(operator, rollouts=6, rollout_s=1.5)
    wait_for(under_way(run), 150)
    trainer = trainer_of(run)
    os.killpg(gpu.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(trainer), 5)
    workers.start("default,gpu")
    wait_for(status_is(run, "lost"), 150)
    run.refresh_from_db()
    assert "no sign of life" in run.failure_message
    shown = set(Episode.objects.filter(run=run).values_list("pk", flat=True))
    assert shown
    services.resume_run(actor=operator, run_id=run.pk)
    wait_for(status_is(run, "completed"), 150)
    run.refresh_from_db()
    assert (run.attempt, run.rollouts_done, run.gap) == (2, 6, False)
    assert shown <= set(Episode.objects.filter(run=run).values_list("pk", flat=True))
    assert Episode.objects.filter(run=run, superseded=False).count() == 24


def test_a_stopped_worker_stops_its_trainer_cleanly(operator: Any, workers: Workers) -> None:
    gpu = workers.start("gpu")
    run = queued(operator, rollouts=500, rollout_s=0.1)
    wait_for(under_way(run), 150)
    trainer = trainer_of(run)
    gpu.send_signal(signal.SIGTERM)
    gpu.wait(60)
    run.refresh_from_db()
    assert run.status == "stopped"
    assert run.transitions.latest("id").why == "its worker was shut down"
    assert not is_alive(trainer)


def test_a_queue_forgotten_by_the_broker_is_sent_again(operator: Any, workers: Workers) -> None:
    run = queued(operator)
    with current_app.connection_for_write() as broker:
        assert broker.default_channel.queue_purge("gpu") == 1
    workers.start("default,gpu")
    wait_for(status_is(run, "completed"), 150)
    assert Event.objects.filter(run=run, kind="rollout_finished").count() == 3


def test_a_worker_is_listed_with_its_queues_while_it_is_there(workers: Workers) -> None:
    from webapp.runs import presence

    worker = workers.start("gpu,default")

    def listed() -> list[presence.Worker]:
        return [one for one in presence.workers() or () if one.pid == worker.pid]

    wait_for(lambda: bool(listed()), 30)
    (one,) = listed()
    assert one.queues == ["default", "gpu"]
    assert one.takes_runs
    worker.terminate()
    worker.wait(timeout=60)
    assert listed() == []
