"""Exchanges of DistributedOptimizer."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from .._pending import Pending
from ._device import give_back_late
from ._groups import Flight
from ._progress import Job


class Exchange(Job):
    """An exchange under way, and what to do with its result."""

    def __init__(
        self, pending: Pending, apply: Callable[[bool], None], flight: Optional[Flight] = None
    ) -> None:
        super().__init__([pending])
        # Whether it goes on in the order of a device's streams.
        self.queued = flight is not None and flight.group.device is not None
        self.apply = apply  # with whether the step is void
        self.flight = flight  # of a reducer
        self.voided: Callable[[], bool] = (
            flight.group.reducer._voided if flight is not None else lambda: False
        )

    def finished(self, failure: Optional[Exception]) -> None:
        pass


def end_queued(queued: Sequence[Exchange], void: bool) -> None:
    """Those on a device are known to be complete: raises what one has failed by. void: the step is,
    by what else was in it."""
    for exchange in queued:
        exchange.advance(wait=True)
    for exchange in queued:
        if exchange.failure is not None:
            raise exchange.failure
    if void or any([exchange.voided() for exchange in queued]):
        give_back_late([exchange.flight for exchange in queued])
