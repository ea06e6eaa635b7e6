"""Steps of reducers that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from ._library import check, lib
from ._pending import Pending
from ._stream import Stream

if TYPE_CHECKING:
    from ._reducer import Reducer


class Step(Pending):
    """A step of a reducer."""

    def __init__(
        self,
        reducer: Reducer,
        call: Callable[..., int],
        arguments: tuple[Any, ...],
        kept: Any,
        result: Callable[[], Any],
        update: Optional[Stream] = None,
    ) -> None:
        super().__init__(
            reducer.comm, (reducer, kept), result, (), () if update is None else (update,)
        )
        self._reducer = reducer
        self._call, self._arguments, self._stream = call, arguments, update

    def start(self) -> Step:
        """Starts it once more, after completion: a step with what the same memory has by now."""
        arguments = self._arguments
        if self._stream is not None:
            with self._reducer._shares_errors:
                arguments = (*arguments, self._stream._change(keep=False))
        check(self._call(self._reducer._live(), *arguments))
        self._began()
        return self

    def _c_request(self) -> Optional[int]:
        request: Optional[int] = lib.rill_reducer_request(self._reducer._live())
        return request

    def _c_test(self, done: Any) -> int:
        return int(lib.rill_reducer_test(self._reducer._live(), done))

    def _c_wait(self) -> int:
        return int(lib.rill_reducer_wait(self._reducer._live()))


class BehindStep(Step):
    """A step behind a stream, whose handle comes with each start."""

    def start(self, stream: Optional[int] = None) -> Step:
        check(self._call(self._reducer._live(), *self._arguments, stream))
        self._began()
        return self


class QueuedStep(Step):
    """A step of ``start_on`` or ``step_on``. Waiting for one waits for all of its reducer."""

    def test(self) -> bool:
        return self not in self._reducer._queue or self._end(super().test)

    def wait(self) -> Any:
        return self._result() if self not in self._reducer._queue else self._end(super().wait)

    def _end(self, how: Callable[[], Any]) -> Any:
        result = None
        try:
            result = how()
        finally:
            if self not in self.comm._under_way:  # complete, well or not
                for step in self._reducer._queue:
                    step._ended()
                self._reducer._queue.clear()
        return result
