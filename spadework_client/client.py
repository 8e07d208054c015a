"""The client: one method for each operation, iterators over pages, and waiting. Answers are the API's JSON as dicts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spadework_client.calls import Json, wait
from spadework_client.errors import RunEnded, SpadeworkError
from spadework_client.keeping import KeepingCalls

#: States in which a run does not change any more by itself.
ENDED = ("completed", "stopped", "failed", "lost")
_TURNS = 500


class Client(KeepingCalls):
    """Calls one server with one token. ``timeout_s`` is for each request; reads are tried ``tries`` times."""

    @classmethod
    def from_environment(cls) -> Client:
        """With SPADEWORK_URL (http://127.0.0.1:8400 without it) and SPADEWORK_TOKEN. Raises SpadeworkError without a token."""
        token = os.environ.get("SPADEWORK_TOKEN", "")
        if not token:
            raise SpadeworkError(
                "SPADEWORK_TOKEN is not set; make a token under “API tokens” in the menu of your account."
            )
        return cls(os.environ.get("SPADEWORK_URL", "http://127.0.0.1:8400"), token)

    # Runs ---------------------------------------------------------------------------------------------------------

    def me(self) -> Json:
        """Whom the server takes the caller for."""
        return dict(self._get("me/"))

    def presets(self) -> list[Json]:
        """Settings to start from."""
        return list(self._get("presets/"))

    def queue(self) -> Json:
        """``active`` and ``waiting`` runs."""
        return dict(self._get("queue/"))

    def runs(self, **filters: Any) -> Iterator[Json]:
        """Runs, newest first; filters: q, regex, status, preset, tag, owner, show, sort."""
        return self._pages("runs/", **filters)

    def run(self, run: int) -> Json:
        """One run with its settings and newest metrics."""
        return dict(self._get(f"runs/{run}/"))

    def dry_run(self, preset: str, overrides: Mapping[str, Any] | None = None) -> Json:
        """What a run of these settings would do and take. Raises InvalidRequest, which names each wrong setting."""
        return dict(self._post("runs/dry-run/", {"preset": preset, "overrides": dict(overrides or {})}))

    def create_run(self, preset: str, overrides: Mapping[str, Any] | None = None, **about: Any) -> Json:
        """A new run of a preset; about: name, tags, notes, start. Raises InvalidRequest.

        A corpus is chosen by ``{"corpus.source": corpus["source"]}`` among the overrides.
        """
        return dict(self._post("runs/", {"preset": preset, "overrides": dict(overrides or {}), **about}))

    def clone_run(self, run: int, overrides: Mapping[str, Any] | None = None, **about: Any) -> Json:
        """A new run with the settings of another one, some replaced. Raises InvalidRequest."""
        return dict(self._post("runs/", {"parent": run, "overrides": dict(overrides or {}), **about}))

    def fork_run(self, run: int, checkpoint: str, overrides: Mapping[str, Any] | None = None, **about: Any) -> Json:
        """A new run that goes on from a checkpoint of another one: its name, best or latest. Raises InvalidRequest, Refused."""
        body = {"parent": run, "checkpoint": checkpoint, "overrides": dict(overrides or {}), **about}
        return dict(self._post("runs/", body))

    def edit_run(self, run: int, **changes: Any) -> Json:
        """Change name, tags or notes."""
        return dict(self._patch(f"runs/{run}/", changes))

    def act(self, run: int, act: str, reason: str = "") -> Json:
        """start, pause, unpause, stop, resume, checkpoint, archive, delete or restore. Raises Refused."""
        return dict(self._post(f"runs/{run}/acts/{act}/", {"reason": reason}))

    def wait_for(
        self, run: int, until: Sequence[str] = ENDED, *, timeout_s: float | None = None, poll_s: float = 2.0
    ) -> Json:
        """Wait until the run is in one of these states, and return it.

        Raises RunEnded when it ended in another one, WaitTimedOut.
        """

        def is_there(found: Json) -> bool:
            if found["status"] not in until and found["status"] in ENDED:
                why = found["failure_message"] or "no message"
                raise RunEnded(f"run {run} is {found['status']} ({why}); waited for {' or '.join(until)}", found)
            return found["status"] in until

        return wait(lambda: self.run(run), is_there, f"run {run} to be {' or '.join(until)}", timeout_s, poll_s)

    def attempts(self, run: int) -> list[Json]:
        """Process lives of a run, newest first."""
        return list(self._get(f"runs/{run}/attempts/"))

    def commands(self, run: int) -> list[Json]:
        """What was asked of the trainer, and its answers."""
        return list(self._get(f"runs/{run}/commands/"))

    def rollouts(self, run: int) -> Iterator[Json]:
        """First to last, each with all its metrics."""
        return self._pages(f"runs/{run}/rollouts/")

    def metrics(self, run: int) -> list[str]:
        """Names of all metrics."""
        return list(self._get(f"runs/{run}/metrics/")["names"])

    def series(self, run: int, *names: str, points: int | None = None) -> dict[str, Json]:
        """Metrics over rollouts by name: x, y (None: a gap), marks, ghosts."""
        return dict(self._get(f"runs/{run}/metrics/series/", name=names, points=points)["series"])

    # What a run made ----------------------------------------------------------------------------------------------

    def environments(self, run: int, **filters: Any) -> Iterator[Json]:
        """Newest set first; filters: q, skill, state, flag, rollout, document."""
        return self._pages(f"runs/{run}/environments/", **filters)

    def environment(self, run: int, key: str, attempt: int | None = None) -> Json:
        """Code, hint, gates and statistics."""
        return dict(self._get(f"runs/{run}/environments/{quote(key, safe='')}/", attempt=attempt))

    def judge(self, run: int, key: str, act: str, reason: str) -> Json:
        """quarantine or release an environment; the trainer's answer is in ``commands`` under the id returned."""
        return dict(self._post(f"runs/{run}/environments/{quote(key, safe='')}/judge/{act}/", {"reason": reason}))

    def candidates(self, run: int, **filters: Any) -> Iterator[Json]:
        """Design attempts, newest first; filters: verdict, skill, stage."""
        return self._pages(f"runs/{run}/candidates/", **filters)

    def candidate(self, run: int, key: str) -> Json:
        """Prompt, reply, code and gates of one design attempt."""
        return dict(self._get(f"runs/{run}/candidates/{quote(key, safe='')}/"))

    def memory(self, run: int, **filters: Any) -> Iterator[Json]:
        """Memory records, newest first; filters: skill, state."""
        return self._pages(f"runs/{run}/memory/", **filters)

    def documents(self, run: int, **filters: Any) -> Iterator[Json]:
        """Corpus documents, newest first; filter: q."""
        return self._pages(f"runs/{run}/documents/", **filters)

    def document(self, run: int, document: int) -> Json:
        """One document with its text."""
        return dict(self._get(f"runs/{run}/documents/{document}/"))

    def regret(self, run: int, **filters: Any) -> Iterator[Json]:
        """Measurements, newest first; filter: skill."""
        return self._pages(f"runs/{run}/regret/", **filters)

    def episodes(self, run: int, **filters: Any) -> Iterator[Json]:
        """Newest first; filters: arm, status, environment, rollout."""
        return self._pages(f"runs/{run}/episodes/", **filters)

    def transcript(self, run: int, episode: int) -> Json:
        """One episode with all its turns."""
        path = f"runs/{run}/episodes/{episode}/"
        whole = piece = dict(self._get(path, limit=_TURNS))
        while piece["more"]:
            piece = self._get(path, start=len(whole["turns"]), limit=_TURNS)
            whole["turns"] += piece["turns"]
        return {**whole, "more": False}

    def alerts(self, run: int | None = None, **filters: Any) -> Iterator[Json]:
        """Of one run or of all, newest first; filter: kind."""
        return self._pages("alerts/" if run is None else f"runs/{run}/alerts/", **filters)

    def webhooks(self) -> list[Json]:
        """Addresses alerts are sent to."""
        return list(self._get("webhooks/"))

    def create_webhook(self, name: str, url: str, kinds: Sequence[str] = ()) -> Json:
        """Register one; ``secret`` of the answer signs what it is sent, and is shown this once."""
        return dict(self._post("webhooks/", {"name": name, "url": url, "kinds": list(kinds)}))

    # Review and pools ---------------------------------------------------------------------------------------------

    def flag_kinds(self) -> list[Json]:
        """What can be wrong."""
        return list(self._get("flag-kinds/"))

    def flags(self, **filters: Any) -> Iterator[Json]:
        """Newest first; filters: kind, severity, state, subject, run, skill, by."""
        return self._pages("flags/", **filters)

    def place_flag(self, run: int, key: str, kind: str, **about: Any) -> Json:
        """Flag an environment; about: subject, severity, comment, wish, weight, episode, turn, first_line, last_line."""
        return dict(self._post(f"runs/{run}/environments/{quote(key, safe='')}/flags/", {"kind": kind, **about}))

    def withdraw_flag(self, flag: int, reason: str = "") -> Json:
        """Take a flag back."""
        return dict(self._post(f"flags/{flag}/withdraw/", {"reason": reason}))

    def review_queues(self) -> list[Json]:
        """Open queues."""
        return list(self._get("review-queues/"))

    def queue_items(self, queue: int, **filters: Any) -> Iterator[Json]:
        """The most suspicious first; filter: state."""
        return self._pages(f"review-queues/{queue}/items/", **filters)

    def queue_labels(self, queue: int) -> Json:
        """``labels`` the caller may see, and how many are ``hidden``."""
        return dict(self._get(f"review-queues/{queue}/labels/"))

    def pools(self) -> Iterator[Json]:
        """Newest first."""
        return self._pages("pools/")

    def pool(self, pool: int) -> Json:
        """State and progress of one pool."""
        return dict(self._get(f"pools/{pool}/"))

    def create_pool(self, name: str, licence: str = "") -> Json:
        """A new, empty pool."""
        return dict(self._post("pools/", {"name": name, "licence": licence}))

    def add_to_pool(self, pool: int, run: int, keys: Sequence[str] | None = None, **filters: Any) -> Json:
        """Put environments of a run into a pool: these keys, else all that the filters of ``environments`` let through."""
        body: Json = {"run": run, "filters": {name: str(value) for name, value in filters.items()}}
        return dict(self._post(f"pools/{pool}/environments/", body | ({} if keys is None else {"keys": list(keys)})))

    def build_pool(self, pool: int, *, timeout_s: float | None = None, poll_s: float = 2.0) -> Json:
        """Have the archive built and wait for it. Raises Refused, WaitTimedOut, SpadeworkError when the build failed."""
        self._post(f"pools/{pool}/acts/build/")
        found = wait(
            lambda: self.pool(pool),
            lambda one: one["state"] != "building",
            f"pool {pool} to be built",
            timeout_s,
            poll_s,
        )
        if found["state"] != "ready":
            raise SpadeworkError(f"pool {pool} is {found['state']}: {found['failure'] or 'its build was stopped'}")
        return found

    def download_pool(self, pool: int, target: str | Path) -> Path:
        """The archive as a file, checked against its SHA-256. Raises NotFound before it is built, SpadeworkError."""
        path, digest = Path(target), self.pool(pool)["archive_sha256"]
        self._transport.save(f"pools/{pool}/pool.tar", path)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            raise SpadeworkError(
                f"{path} has SHA-256 {found} and not {digest}; the pool was built again meanwhile: retry."
            )
        return path
