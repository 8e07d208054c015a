"""One answer for everybody who asks the same at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Keeps the newest `keep` answers of one process. Whoever asks while an answer is being made waits for that one.

    The key must name the state the answer is made from (a cursor, a version), so that what is kept can never be out of date.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._answers: OrderedDict[Hashable, Future[T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer under ``key``, made by ``make`` unless it is there; an error of ``make`` is raised to all who wait and not kept."""
        with self._lock:
            answer = self._answers.get(key)
            is_ours = answer is None
            if answer is None:
                answer = self._answers[key] = Future()
                while len(self._answers) > self._keep:
                    self._answers.popitem(last=False)
        if is_ours:
            try:
                answer.set_result(make())
            except BaseException as error:  # noqa: BLE001 - raised again below, and to all who wait
                with self._lock:
                    self._answers.pop(key, None)
                answer.set_exception(error)
        return answer.result()
