"""Taking in uploaded files: straight to the disk of the home, counted against the limit, and gone again unless they are kept."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, SkipFile, StopUpload
from django.http import HttpRequest

from webapp.corpora.storage import incoming, why_not_readable

FILES_AT_ONCE = 100
_LEFT_FREE_BYTES = 512 * 1024**2  # of the disk: runs and the database write there too


class IncomingFile(UploadedFile):
    """A file that has arrived whole; ``path`` is where it lies."""

    def __init__(self, path: Path, name: str, size: int) -> None:
        self.path = path
        super().__init__(None, name, size=size)

    def close(self) -> None:
        """Nothing is open; Django closes what it was given when an upload has too many files."""


class IncomingFiles(FileUploadHandler):
    """Django's upload handler for corpora. ``problem`` says why something was not taken; ``discard`` removes all that was not moved on."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request)
        self.problem = ""
        self.files: list[IncomingFile] = []
        self._limit_bytes: int = settings.SPADEWORK_UPLOAD_BYTES
        self._taken_bytes = 0
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._size = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin a file, or skip it when it is of a kind that is not read."""
        super().new_file(*args, **kwargs)
        name = str(self.file_name or "")
        problem = why_not_readable(name)
        if not problem and len(self.files) >= FILES_AT_ONCE:
            problem = f"At most {FILES_AT_ONCE} files can be uploaded at once; put them into one JSONL file."
        if self.problem or problem:
            self.problem = self.problem or problem
            raise SkipFile
        incoming().mkdir(parents=True, exist_ok=True)
        self._path, self._size = incoming() / f"{uuid4().hex}.part", 0
        self._file = self._path.open("xb")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Write a piece; stop at the limit or when the disk would be full."""
        if self._file is None:
            return
        self._taken_bytes += len(raw_data)
        if self._taken_bytes > self._limit_bytes:
            self._stop(f"The upload is larger than {self._limit_bytes / 1024**2:,.0f} MiB, the limit set by the admin.")
        if shutil.disk_usage(incoming()).free < _LEFT_FREE_BYTES + len(raw_data):
            self._stop("The disk of this machine is almost full; make room and upload again.")
        try:
            self._file.write(raw_data)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._stop("The disk of this machine is full." if full else f"The upload cannot be written: {error}")
        self._size += len(raw_data)

    def file_complete(self, file_size: int) -> IncomingFile | None:
        """The file is there, whole."""
        if self._file is None or self._path is None:
            return None
        self._file.close()
        done = IncomingFile(self._path, str(self.file_name or ""), self._size)
        self._file, self._path = None, None
        self.files.append(done)
        return done

    def upload_interrupted(self) -> None:
        """The browser went away."""
        self.discard()

    def discard(self) -> None:
        """Remove whatever was not moved on."""
        if self._file is not None:
            self._file.close()
        for path in [*([self._path] if self._path else []), *(file.path for file in self.files)]:
            path.unlink(missing_ok=True)
        self._file, self._path = None, None

    def _stop(self, problem: str) -> None:
        self.problem = problem
        self.discard()
        raise StopUpload(connection_reset=False)
