"""Methods about what is kept on the server: corpora, checkpoints, disk, retention, imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spadework_client.calls import Calls, Json, wait
from spadework_client.errors import SpadeworkError


class KeepingCalls(Calls):
    """A part of ``Client``."""

    # Corpora ------------------------------------------------------------------------------------------------------

    def corpora(self) -> Iterator[Json]:
        """Newest first. ``source`` of one is what ``corpus.source`` of a run holds."""
        return self._pages("corpora/")

    def corpus(self, corpus: int) -> Json:
        """One corpus with what the trainer's loader found in it."""
        return dict(self._get(f"corpora/{corpus}/"))

    def upload_corpus(self, *files: str | Path, name: str = "", licence: str = "", notes: str = "") -> Json:
        """Upload files as one corpus, which a worker then checks. Raises InvalidRequest, Refused, OSError; then nothing is kept."""
        about = {"name": name, "licence": licence, "notes": notes}
        return dict(self._transport.upload("corpora/", about, "files", [Path(file) for file in files]))

    def corpus_choices(self, folder: str = "") -> list[Json]:
        """What can be chosen from the server's folder of corpora, or from a folder in it. Raises Refused when none is set."""
        return list(self._get("corpora/choices/", folder=folder))

    def choose_corpus(self, path: str, **about: str) -> Json:
        """List a file or folder of the server, as ``path`` of a choice, as a corpus; about: name, licence, notes. Raises Refused."""
        return dict(self._post("corpora/choices/", {"path": path, **about}))

    def edit_corpus(self, corpus: int, **changes: str) -> Json:
        """Change name, licence or notes."""
        return dict(self._patch(f"corpora/{corpus}/", changes))

    def check_corpus(self, corpus: int) -> Json:
        """Have a worker read the files once more. Raises Refused."""
        return dict(self._post(f"corpora/{corpus}/check/"))

    def wait_for_corpus(self, corpus: int, *, timeout_s: float | None = None, poll_s: float = 2.0) -> Json:
        """Wait until it is ready, and return it. Raises SpadeworkError with the reason when it is not usable, WaitTimedOut."""
        found = wait(
            lambda: self.corpus(corpus), lambda one: one["state"] != "checking" or bool(one["failure"]),
            f"corpus {corpus} to be checked", timeout_s, poll_s,
        )  # fmt: skip
        if found["state"] != "ready":
            raise SpadeworkError(f"corpus {corpus} ({found['name']}) is not usable: {found['failure']}")
        return found

    def delete_corpus(self, corpus: int) -> None:
        """Take it off the list; an upload's files stay until no run names it. Raises Refused."""
        self._delete(f"corpora/{corpus}/")

    # Checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self, run: int) -> Iterator[Json]:
        """Newest first, superseded ones too; ``stored`` ones are on the disk, one of those is ``best``."""
        return self._pages(f"runs/{run}/checkpoints/")

    def download_checkpoint(
        self, run: int, checkpoint: str, target: str | Path, *, with_optimiser: bool = False
    ) -> Path:
        """A checkpoint (its name, ``best`` or ``latest``) as a tar. A download that broke off, in an earlier call too, goes on.

        Until it is whole it lies beside ``target`` with the ending .part. Raises Refused, Unreachable.
        """
        part = "all" if with_optimiser else "model"
        path = Path(target)
        self._transport.save_in_pieces(f"runs/{run}/checkpoints/{quote(checkpoint, safe='')}/{part}.tar", path)
        return path

    # Disk and retention -------------------------------------------------------------------------------------------

    def disk(self) -> Iterator[Json]:
        """What each run takes, the largest first."""
        return self._pages("disk/")

    def disk_totals(self) -> Json:
        """Sums over all runs, the database, and what is free; bytes."""
        return dict(self._get("disk/totals/"))

    def measure_disk(self) -> None:
        """Have a worker measure runs whose figures are missing or old."""
        self._post("disk/measure/")

    def retention(self) -> Json:
        """How long what is kept, and what is due to be removed."""
        return dict(self._get("retention/"))

    def plan_retention(self, **changes: int | None) -> Json:
        """What a change ``removes`` for good, and the ``digest`` that confirms it; nothing changes. Raises InvalidRequest."""
        return dict(self._post("retention/plan/", changes))

    def change_retention(self, *, confirmed: str = "", **changes: int | None) -> Json:
        """Change settings: restore_days, tensor_days, sample_days, keep_last, keep_every, keep_best; None is the default.

        Raises Refused when it removes something and ``confirmed`` is not the digest of that plan.
        """
        return dict(self._patch("retention/", {**changes, "confirmed": confirmed}))

    # Runs made elsewhere ------------------------------------------------------------------------------------------

    def import_folders(self, path: str = "") -> Json:
        """Folders below the server's import folder, and which hold a run. Raises Refused."""
        return dict(self._get("imports/folders/", path=path))

    def imports(self) -> Iterator[Json]:
        """What was asked to be imported, newest first."""
        return self._pages("imports/")

    def import_run(self, path: str, **options: Any) -> Json:
        """Have a worker take in a run directory; options: name, copying (nothing, records, everything), accept_damage. Raises Refused."""
        return dict(self._post("imports/", {"path": path, **options}))

    def wait_for_import(self, job: int, *, timeout_s: float | None = None, poll_s: float = 2.0) -> Json:
        """Wait until it is over, and return it; ``run`` is the run. Raises SpadeworkError with the reason it was refused, WaitTimedOut."""
        found = wait(
            lambda: dict(self._get(f"imports/{job}/")), lambda one: one["state"] != "waiting", f"import {job}", timeout_s, poll_s
        )  # fmt: skip
        if found["state"] != "done":
            raise SpadeworkError(f"import {job} of {found['path']} failed: {found['failure']}")
        return found
