"""Reducers (training steps), and names of methods."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Sequence

import numpy as np

from ._buffers import DeviceArray, Type, buffer_of, dim_of, numpy_dtype, order, type_of, view
from ._comm import Comm
from ._foreign import device_of, stream_handle
from ._library import Fork, Sharing, check, check_shared, lib
from ._steps import BehindStep, QueuedStep, Step
from ._stream import Stream
from ._structs import CTensor, Stats, empty_stats, reducer_options, stats_of

if TYPE_CHECKING:
    from ._structs import ReducerOptions, Unpack

_METHODS: dict[str, dict[str, Any]] = {
    "dense": {"algorithm": "dense"},
    "topk": {"algorithm": "split_allgather", "select": "topk"},
    "auto": {"algorithm": "auto", "select": "auto"},
}


def method(name: str) -> dict[str, Any]:
    """Reducer options of a method's short name.

    "dense", "topk" (the exact sum of what the ranks selected), "auto" (the planner chooses for each
    tensor) or the name of an algorithm such as "oktopk"; "+qsgd8", "+qsgd4" and "+qsgd2" add
    quantized values.
    """
    base, _, coding = name.partition("+")
    options = dict(_METHODS.get(base, {"algorithm": base}))
    if coding:
        if coding not in ("qsgd8", "qsgd4", "qsgd2"):
            raise ValueError(f"method {name!r}: {coding!r} is none of qsgd8, qsgd4, qsgd2")
        options["value_bits"] = int(coding[4:])
    return options


class Reducer:
    """A training step: takes this rank's gradient, sends what is worth it, keeps the rest for later
    steps (the residual), and gives all ranks the same update: the mean, or with ``average=False``
    the sum.

    Options are keywords, ``algorithm="oktopk", density=0.01, value_bits=4, ...``;
    ``**rill.method("topk+qsgd4")`` gives those of a named method. Gradients and updates are NumPy
    arrays or CPU tensors of ``dim`` values, used in place; the update may be the gradient. Create,
    step, start, save and load are collective.

    With ``memory="cuda"`` (and ``device=0``; the current one by default) they are in the memory of
    a CUDA device: tensors of PyTorch, and whatever has the CUDA array interface or DLPack. So are
    residuals and the work. ``start_on`` and ``step_on`` read the gradient behind the work of a
    stream of the device.
    """

    def __init__(
        self, comm: Comm, dim: int, dtype: Any = Type.F32, **options: Unpack[ReducerOptions]
    ) -> None:
        if not isinstance(comm, Comm):
            raise TypeError(f"comm is of type {type(comm).__name__}: a rill.Comm is needed")
        self.comm = comm
        self.options = dict(options)
        self._handle = ctypes.c_void_p()
        self._shares_errors = Sharing(lib.rill_reducer_step, self._handle, None, None)
        comm._live()
        with comm._shares_errors["allreduce"]:
            self.dim = dim_of(dim)
            self.type = type_of(dtype)
            self.device = device_of(options)
            c_options = reducer_options(options)
        comm._agree()
        check_shared(
            lib.rill_reducer_create(
                comm._live(),
                int(self.type),
                self.dim,
                ctypes.byref(c_options),
                ctypes.byref(self._handle),
            )
        )
        comm._children.add(self)
        self._queue: list[QueuedStep] = []  # of start_on and step_on, not known to be complete

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Reducer can't be copied or pickled: its ranks belong together; save() and load() "
            "keep its state, and Reducer(comm, dim, dtype, **options) makes another"
        )

    def __repr__(self) -> str:
        return f"<rill.Reducer dim={self.dim} {self.type.name.lower()} {self.options}>"

    def _live(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError("the reducer was freed")
        return self._handle

    def _gradient(self, gradient: Any) -> Any:
        return self._buffer(gradient, "gradient", self.dim)

    def _update(self, update: Any) -> Any:
        return self._buffer(update, "update", self.dim, writable=True)

    def _buffer(self, obj: Any, name: str, count: Optional[int], writable: bool = False) -> Any:
        return order(buffer_of(obj, name, self.type, count, writable, self.device))

    def step(self, gradient: Any, update: Any = None) -> Any:
        """One step; the update goes to ``update``, or over the gradient."""
        update = gradient if update is None else update
        with self._shares_errors:
            source, target = self._gradient(gradient).address, self._update(update).address
        check_shared(lib.rill_reducer_step(self._live(), source, target))
        return update

    def step_stream(self, gradient: Any, update: Optional[Stream] = None) -> Stream:
        """One step with the update as a stream, which saves writing a dense vector."""
        with self._shares_errors:
            update = _stream_of(self, update)
            source, target = self._gradient(gradient).address, update._change(keep=False)
        check_shared(lib.rill_reducer_step_stream(self._live(), source, target))
        return update

    def start(self, gradient: Any, update: Any = None) -> Step:
        """Starts a step. The gradient is free again on return, unless the update goes over it; the
        update is there when what this returns is complete."""
        return self._prepare(gradient, update).start()

    def _prepare(self, gradient: Any, update: Any = None) -> Step:
        """A step that start() begins."""
        update = gradient if update is None else update
        with self._shares_errors:
            source, target = self._gradient(gradient), self._update(update)
        return Step(
            self,
            lib.rill_reducer_start,
            (source.address, target.address),
            (source, target),
            lambda: update,
        )

    def start_on(self, gradient: Any, update: Any = None, stream: Any = None) -> Step:
        """Starts a step behind the work of a stream of the CUDA device (``memory="cuda"``): returns
        at once, and reads the gradient after what was given to the stream before. When what this
        returns is complete the update is there for all streams. No stream waits for it.

        ``stream`` is a ``torch.cuda.Stream``, one of CuPy's, or the number of a cudaStream_t; by
        default PyTorch's current one for its tensors, the one that the CUDA array interface names,
        or the legacy stream. Steps queue up. A failure is raised by the next ``start_on``, or by
        ``wait()`` of what this returns; the update is NaN then. ``wait()`` comes before any other
        use of the reducer. Collective.
        """
        return self._queue_step(lib.rill_reducer_start_on, gradient, update, stream)

    def step_on(self, gradient: Any, update: Any = None, stream: Any = None) -> Step:
        """As ``start_on``, in the order of the stream: the update is there for what is given to the
        stream after the call, and the stream waits for it. The call itself returns at once for
        most options; docs/guide/gpu.md has the others. Failures are told as by ``start_on``. Needs
        threads: ``comm.threads``. Collective.
        """
        return self._queue_step(lib.rill_reducer_step_on, gradient, update, stream)

    def _queue_step(self, call: Any, gradient: Any, update: Any, stream: Any) -> Step:
        self._see_queue()
        update = gradient if update is None else update
        with self._shares_errors:
            on, kind, where = stream_handle(stream, gradient), self.type, self.device
            source = buffer_of(gradient, "gradient", kind, self.dim, False, where, on)
            target = buffer_of(update, "update", kind, self.dim, True, where, on)
            arguments = (source.address, target.address, on)
        kept = (source, target, stream)
        step = QueuedStep(self, call, arguments, kept, lambda: update)
        step.start()
        self._queue.append(step)
        return step

    def _see_queue(self) -> None:
        """Lets go of what complete steps of the queue hold, and raises what they failed by."""
        if self._queue:
            self._queue[-1].test()

    def _prepare_on(self, tensors: Sequence[Any]) -> BehindStep:
        """A step in place, on one tensor or several, that start() begins behind a stream."""
        with self._shares_errors:
            list_, kept, updates = self._tensors(tensors, None, ordered=False)
        if len(list_) == 1 and list_[0].count == self.dim:
            one = (list_[0].gradient, list_[0].update)
            return BehindStep(self, lib.rill_reducer_start_on, one, kept, lambda: updates)
        several = (len(list_), list_)
        call = lib.rill_reducer_start_tensors_on
        return BehindStep(self, call, several, kept, lambda: updates)

    def move(self, comm: Comm) -> bool:
        """Goes on on another communicator, after a rank died (``comm.shrink()``) or others joined,
        with residual and momentum. Collective on it.

        True: the step in which the rank died is void on all ranks, and is to be repeated. False: it
        is complete, and ``update`` gives its result.
        """
        again = ctypes.c_int()
        status = lib.rill_reducer_move(self._live(), comm._live(), ctypes.byref(again))
        for pending in list(self.comm._under_way):
            if isinstance(pending, Step) and pending._reducer is self:
                pending._ended()
        check_shared(status)
        self._queue.clear()
        self.comm._children.discard(self)
        self.comm = comm
        comm._children.add(self)
        return bool(again.value)

    def update(self, update: Any) -> Any:
        """The update of the last complete step, once more, in ``update``."""
        check(lib.rill_reducer_update(self._live(), self._update(update).address))
        return update

    def start_stream(self, gradient: Any, update: Optional[Stream] = None) -> Step:
        """As start, with the update as a stream."""
        with self._shares_errors:
            out = _stream_of(self, update)
            source = self._gradient(gradient)
        return Step(
            self, lib.rill_reducer_start_stream, (source.address,), (source, out), lambda: out, out
        ).start()

    def _tensors(
        self, gradients: Sequence[Any], updates: Optional[Sequence[Any]], ordered: bool = True
    ) -> tuple[Any, Any, Sequence[Any]]:
        updates = gradients if updates is None else updates
        if len(updates) != len(gradients):
            raise ValueError(f"there are {len(gradients)} gradients and {len(updates)} updates")
        where = self.device
        sources = [
            buffer_of(g, f"gradients[{i}]", self.type, None, False, where)
            for i, g in enumerate(gradients)
        ]
        targets = [
            buffer_of(u, f"updates[{i}]", self.type, sources[i].count, True, where)
            for i, u in enumerate(updates)
        ]
        for buffer in sources if ordered else ():
            order(buffer)
        list_ = (CTensor * len(sources))(
            *(CTensor(s.address, t.address, s.count) for s, t in zip(sources, targets))
        )
        return list_, (sources, targets), updates

    def step_tensors(
        self, gradients: Sequence[Any], updates: Optional[Sequence[Any]] = None
    ) -> Sequence[Any]:
        """One step on several tensors as if they were one vector; their sizes sum up to dim."""
        with self._shares_errors:
            list_, _, updates = self._tensors(gradients, updates)
        check_shared(lib.rill_reducer_step_tensors(self._live(), len(list_), list_))
        return updates

    def start_tensors(
        self, gradients: Sequence[Any], updates: Optional[Sequence[Any]] = None
    ) -> Step:
        """As start, on several tensors."""
        return self._prepare_tensors(gradients, updates).start()

    def _prepare_tensors(
        self, gradients: Sequence[Any], updates: Optional[Sequence[Any]] = None
    ) -> Step:
        """As _prepare, on several tensors."""
        with self._shares_errors:
            list_, kept, updates = self._tensors(gradients, updates)
        return Step(
            self, lib.rill_reducer_start_tensors, (len(list_), list_), kept, lambda: updates
        )

    def accumulate(self, gradient: Any) -> None:
        """Adds a micro-batch's gradient to the next step, and sends nothing. Not collective."""
        check(lib.rill_reducer_accumulate(self._live(), self._gradient(gradient).address))

    def scale(self, factor: float) -> None:
        """Multiplies what waits to be sent. With the old learning rate over the new one it counts
        with the rate that it was computed at. Not collective, but all ranks should."""
        check(lib.rill_reducer_scale(self._live(), factor))

    def give_back(self, first: int, values: Any) -> None:
        """Takes back entries of an update that nobody applies, from entry ``first`` on: each rank
        keeps its share for later steps. Sends nothing; all ranks should, with the same values."""
        given = self._buffer(values, "values", None)
        check(lib.rill_reducer_give_back(self._live(), first, given.count, given.address))

    def keep(self, residual: Any = None, momentum: Any = None) -> None:
        """Adds to what this rank has not sent, and to its momentum, as a checkpoint has them:
        neither ``clip=`` nor ``momentum=`` see it. Sends nothing."""
        both = [
            None if values is None else self._buffer(values, name, self.dim)
            for values, name in ((residual, "residual"), (momentum, "momentum"))
        ]
        addresses = [None if buffer is None else buffer.address for buffer in both]
        check(lib.rill_reducer_keep(self._live(), *addresses))

    def _stream(self) -> Stream:
        if self.device is None:
            return Stream(self.dim, self.type)
        return Stream(self.dim, self.type, memory="cuda", device=self.device)

    @property
    def residual(self) -> Any:
        """A copy of what this rank has not sent yet; of bf16 as uint16. With ``memory="cuda"`` a
        view on the device, until the next call."""
        residual = self._residual()
        return residual if self.device is not None else residual.copy()

    @property
    def momentum(self) -> Any:
        """As ``residual``, of the momentum; None without it."""
        momentum = self._momentum()
        return momentum if self.device is not None or momentum is None else momentum.copy()

    def _residual(self) -> Any:
        """A view, until the next call."""
        return self._view(lib.rill_reducer_residual(self._live()))

    def _momentum(self) -> Any:
        address = lib.rill_reducer_momentum(self._live())
        return None if not address else self._view(address)

    def _view(self, address: Any) -> Any:
        dtype = numpy_dtype(self.type)
        if self.device is None:
            return view(address, self.dim, dtype, self)
        return DeviceArray(address, self.dim, np.int16 if self.type is Type.BF16 else dtype, self)

    @property
    def stats(self) -> Stats:
        """Of the last step."""
        stats = empty_stats()
        check(lib.rill_reducer_stats(self._live(), ctypes.byref(stats)))
        return stats_of(stats)

    def _voided(self) -> bool:
        """Whether the last step was void; cheaper than all of stats."""
        stats = empty_stats()
        check(lib.rill_reducer_stats(self._live(), ctypes.byref(stats)))
        return bool(stats.voided)

    def save(self, path: "os.PathLike[str] | str") -> None:
        """Writes one file for all ranks, with everything that a later step depends on."""
        self._file(lib.rill_reducer_save, path)

    def load(self, path: "os.PathLike[str] | str") -> None:
        """Goes on where a saved reducer was: bit by bit with the same number of ranks; with
        another, residuals move to other ranks and none is lost. dim, type and options must be those
        of the saved one."""
        self._file(lib.rill_reducer_load, path)

    def _file(self, call: Any, path: Any) -> None:
        handle = self._live()
        with self.comm._shares_errors["allreduce"]:
            name = os.fsencode(path)
        self.comm._agree()
        check_shared(call(handle, name))

    def free(self) -> None:
        """Frees it, after completion of a step under way. Without it, garbage collection does."""
        if self._handle:
            status = lib.rill_reducer_free(ctypes.byref(self._handle))
            for pending in list(self.comm._under_way):
                if isinstance(pending, Step) and pending._reducer is self:
                    pending._ended()
            check(status)

    def __del__(self) -> None:
        # No step is under way: it would hold a reference.
        if getattr(self, "_handle", None) and not self.comm.freed and not Fork.forked:
            lib.rill_reducer_free(ctypes.byref(self._handle))


def _stream_of(reducer: Reducer, update: Optional[Stream]) -> Stream:
    if update is not None and not isinstance(update, Stream):
        raise TypeError(f"update is of type {type(update).__name__}: a rill.Stream is needed")
    return reducer._stream() if update is None else update


def float32_of(reducer: Reducer, view: Any) -> Any:
    """A copy of its residual or momentum as float32 (float64 stays)."""
    if reducer.type is Type.BF16:
        return (view.astype(np.uint32) << 16).view(np.float32)
    return view.astype(np.float64 if reducer.type is Type.F64 else np.float32)
