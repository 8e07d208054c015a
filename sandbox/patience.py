"""Whether to poll for the next frame or to sleep: on both ends of a channel."""

from __future__ import annotations

from typing import Final

_MOST_SKIPPED: Final = 64


class Patience:
    """Polling in vain is followed by twice as many frames without polling as the last time, polling with success by none."""

    __slots__ = ("_left", "_skipped")

    def __init__(self) -> None:
        """Start with polling."""
        self._left = self._skipped = 0

    def try_now(self) -> bool:
        """Whether to poll for this frame."""
        if self._left:
            self._left -= 1
            return False
        return True

    def hit(self) -> None:
        """The frame came while it was polled for."""
        self._skipped = 0

    def missed(self) -> None:
        """It did not come."""
        self._left = self._skipped = min(max(1, 2 * self._skipped), _MOST_SKIPPED)
