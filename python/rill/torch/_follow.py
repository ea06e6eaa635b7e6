"""What gradients are multiplied by, after the exchange (the learning rate) or before it (the scale
of the loss).

Residuals wait while it changes. They are to count with the value that was there when they were
computed, so they are scaled when it has changed. The value that they count with is kept here and in
checkpoints: whatever the order in which objects are built and loaded, the next step finds both it
and the present value.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

# By which a learning rate changes before residuals are scaled: that takes a pass over memory.
_RATE_STEP = 0.02


class _Value:
    """One of the two. ``before``: gradients have it in them when they come."""

    def __init__(self, before: bool, tolerance: float) -> None:
        self._before, self._tolerance = before, tolerance
        self._read: Optional[Callable[[], float]] = None
        self._unknown = False  # there were steps that nobody followed
        self.value: Optional[float] = None  # that residuals count with; None: that of the next step

    def follow(self, read: Callable[[], float]) -> None:
        self._read = read
        if self._unknown and self.value is None:
            self.value = self._present()
        self._unknown = False

    def followed(self) -> bool:
        return self._read is not None

    def load(self, value: Optional[float]) -> None:
        self.value, self._unknown = value, False

    def _present(self) -> Optional[float]:
        assert self._read is not None
        value = float(self._read())
        return value if 0 < value < float("inf") else None  # at a rate of 0 all waits

    def factor(self) -> float:
        """Residuals count with the present value once they are multiplied by this."""
        if self._read is None:
            self.value, self._unknown = None, True
            return 1.0
        old, new = self.value, self._present()
        if new is None or new == old:
            return 1.0
        if old is None:
            self.value = new
            return 1.0
        if abs(new / old - 1) < self._tolerance:
            return 1.0
        self.value = new
        return new / old if self._before else old / new


class Followed:
    """Rate and scale."""

    def __init__(self) -> None:
        self._rate, self._scale = _Value(before=False, tolerance=_RATE_STEP), _Value(
            before=True, tolerance=0.0
        )

    def follow(self, what: Any) -> None:
        """An optimizer, whose first group of parameters has the rate, or a GradScaler."""
        if callable(getattr(what, "get_scale", None)):
            self._scale.follow(what.get_scale)
        elif getattr(what, "param_groups", None):
            self._rate.follow(lambda: what.param_groups[0]["lr"])
        else:
            raise TypeError(
                f"can't follow a {type(what).__name__}: an optimizer or a GradScaler is needed"
            )

    def has_rate(self) -> bool:
        return self._rate.followed()

    def has_scale(self) -> bool:
        return self._scale.followed()

    def factors(self) -> tuple[float, float]:
        """What residuals are to be multiplied by before the next step: for the rate, and for the
        scale."""
        return self._rate.factor(), self._scale.factor()

    def state(self) -> dict[str, Optional[float]]:
        return {"rate": self._rate.value, "scale": self._scale.value}

    def load(self, state: Any) -> None:
        self._rate.load(state.get("rate"))
        self._scale.load(state.get("scale"))
