"""Case 4: what is no finite number passes through the socket as valid JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.runs.eventwriter import EventWriter
from tests.runs.test_live import connected, cookie_of, ingest

pytestmark = pytest.mark.django_db(transaction=True)


def refuse(constant: str) -> Any:
    pytest.fail(f"{constant} is not JSON")


async def test_case_04_values_that_are_no_finite_number_pass_as_valid_json_and_are_told_apart(
    live_run: Any, signed_in: Client
) -> None:
    writer = EventWriter(Path(live_run.directory))
    writer.start()
    writer.open_rollout(0)
    writer.emit(
        "metrics", values={"loss": None, "kl": None, "x": None, "y": 1.0}, not_finite={"loss": "nan", "kl": "inf", "x": "-inf"}
    )  # fmt: skip
    # A foreign writer that does not know better: bare constants, which JSON does not have.
    writer.raw(writer.line("metrics", {"values": {"loss": float("nan"), "kl": float("inf"), "x": float("-inf")}}))
    await ingest(live_run)
    frames: list[dict[str, Any]] = []
    async with connected(f"/ws/runs/{live_run.pk}/?cursor=0", cookie_of(signed_in)) as live:
        while sum(len(frame["events"]) for frame in frames) < 5:
            frame = json.loads(await live.receive_text(timeout=30), parse_constant=refuse)
            if frame["type"] == "events":
                frames.append(frame)
                await live.send_text(json.dumps({"type": "ack", "to": frame["to"]}))
        writer.emit("warning", message="the socket is still there")
        await ingest(live_run)
        while frames[-1]["events"][-1]["k"] != "warning":
            frame = json.loads(await live.receive_text(timeout=30), parse_constant=refuse)
            if frame["type"] == "events":
                frames.append(frame)
    metrics = [event for frame in frames for event in frame["events"] if event["k"] == "metrics"]
    assert metrics[0]["p"]["values"] == {"loss": None, "kl": None, "x": None, "y": 1.0}
    assert metrics[0]["p"]["not_finite"] == {"loss": "nan", "kl": "inf", "x": "-inf"}
    assert len(metrics) == 2  # the foreign line is there too, marked as one that does not fit
    assert metrics[1].get("x")


@pytest.fixture
def live_run(db: None, tmp_path: Path) -> Any:
    from tests.pages.test_run_pages import new_run

    return new_run(status="running", gpu_set="live", attempt=1, directory=str(tmp_path / "run"))


@pytest.fixture
def signed_in(viewer: Client) -> Client:
    return viewer
