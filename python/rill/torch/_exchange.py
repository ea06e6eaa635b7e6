"""Exchanges of DistributedOptimizer."""

from __future__ import annotations

from typing import Callable, Optional

from .._pending import Pending
from ._groups import Flight
from ._progress import Job


class Exchange(Job):
    """An exchange under way, and what to do with its result."""

    def __init__(
        self, pending: Pending, apply: Callable[[bool], None], flight: Optional[Flight] = None
    ) -> None:
        super().__init__([pending])
        self.alone = flight is not None and flight.group.device is not None
        self.apply = apply  # with whether the step is void
        self.flight = flight  # of a reducer
        self.voided: Callable[[], bool] = (
            flight.group.reducer._voided if flight is not None else lambda: False
        )

    def finished(self, failure: Optional[Exception]) -> None:
        pass
