"""Training that meets seldom: local steps, and now and then a sparse mean of what they changed.

SparseLoCo (arXiv 2508.15706). Every ``every`` steps, with D the difference to the last common
weights, e = 0.95 e + D; send = Q(the largest of each chunk of e); e = e - send. The mean of what
the ranks sent is applied to the common weights, and all go on from there: from the same bits. With
``keep=None`` and ``outer="nesterov"`` it is DiLoCo (arXiv 2311.08105).

All ranks get all contributions, so that they can be weighed, clipped and counted one by one. Rounds
are numbered, and parts of the model take turns. Nothing changes before a round is complete: a round
without enough contributions leaves all as it was, and what was trained goes into the next one.

When a rank dies in a round, some may have completed it and others not. The living meet, and those
who have it tell the others; or all repeat it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import Any, Callable, Mapping, NamedTuple, Optional

import torch

from .._codes import gather
from .._comm import Comm
from .._library import PeerError
from .._names import Average, Clip, Outer, ValueBits
from .._stream import as_stream
from ._checks import agree
from ._contribution import Coding, Sent, clip_to_median, mean_of
from ._ddp import named_parameters
from ._groups import default_comm
from ._local_files import Files
from ._local_options import check, check_state, rising, trained
from ._process_group import broadcast_parameters, broadcast_tensors
from ._tiles import Layout, shared_out

_FORMAT = 1
_WARMUP = (16, 4)  # times keep, in the first rounds


class Round(NamedTuple):
    """What the last round was like on this rank."""

    number: int
    contributions: int  # 0: too few
    sent_bytes: int  # this rank's coded contribution
    received_bytes: int  # those of the others
    dense_bytes: int  # of the parameters that took part, in 4 bytes each


class _Part:
    """Parameters that are exchanged together."""

    def __init__(
        self, layout: Layout, keep: Optional[int], value_bits: int, warmup_rounds: int
    ) -> None:
        self.layout = layout
        self._codings: list[Coding] = []  # of the first rounds, and the one of all others
        if keep is not None:
            made = {n: Coding(layout, n * keep, value_bits) for n in (*_WARMUP, 1)}
            self._codings = [made[n] for n in _WARMUP for _ in range(warmup_rounds)] + [made[1]]
        self.common = layout.read(layout.parameters)
        self.error = torch.zeros_like(self.common)
        self.velocity: Optional[torch.Tensor] = None
        self.dense_bytes = 4 * sum(p.numel() for p in layout.parameters)
        self._short = any(p.dtype is not torch.float32 for p in layout.parameters)
        self.rounding: Optional[torch.Tensor] = None  # of what was written last

    def coding(self, number: int) -> Optional[Coding]:
        """Of this part's round of that number; None where all entries are summed."""
        return self._codings[min(number, len(self._codings) - 1)] if self._codings else None

    def write(self, vector: torch.Tensor) -> None:
        """To the parameters, which may have fewer bits. What they can't hold was not trained."""
        self.layout.write(vector, self.layout.parameters)
        if self._short:
            self.rounding = self.layout.read(self.layout.parameters) - vector

    def difference(self, now: torch.Tensor) -> torch.Tensor:
        """Of the parameters, as they are now, to the common weights."""
        found = now - self.common
        return found if self.rounding is None else found - self.rounding


class _Flight(NamedTuple):
    """A round under way."""

    number: int
    part: _Part
    coding: Optional[Coding]
    start: torch.Tensor  # the parameters when it began
    error: torch.Tensor  # once it is complete
    sent: Sent
    steps: int


class LocalUpdates(Files):
    """Local training with seldom and sparse exchanges.

    ``local = rill.torch.LocalUpdates(model)``, and ``local.step()`` after each step of the
    optimizer, which stays local.

    every: steps between rounds. keep: entries of each chunk that are sent, None for all of them.
    chunk: entries of a chunk, tiles of matrices; parameters of one dimension, or of fewer values
    than ``small``, go densely. value_bits of all: 0, 16, 8, 4 or 2; 2 are a sign and one of two
    magnitudes, which take about 1.5 bits. decay: of what waits. average:
    "senders" divides each entry by those who sent it, "all" by the contributions. The first is the
    default, but not with ``keep=None``. outer: "sgd", at ``outer_lr`` 1, or "nesterov", with
    ``outer_momentum`` 0.9 and at rate 0.7. warmup_steps: in so many first steps rounds follow each
    other sooner, after one step at first, and ever more up to ``every``: what training from scratch
    learns then is learned in common. warmup_rounds: so many first rounds with 16 times
    ``keep``, and so many with 4 times. parts: the model in so many parts, one a round, so that
    messages are small and even; a part has a round every ``every`` steps. delay: steps that go on
    while a round is under way, in a thread; what was trained meanwhile stays. minimum:
    contributions that a round needs. deadline_s: a rank takes part after so many seconds with the
    steps that it has; nobody waits longer than that and a step. clip: "median" scales each tensor
    of a contribution to at most the median norm of all. buffers: average the module's buffers of
    floating point in each round.

    All ranks begin with rank 0's parameters. With ``delay=0`` all have the same parameters, to the
    bit, after each round: where ``step()`` has returned True. Buffers are averaged, but not
    integers. After a rank's death the others go on (not over MPI). Collective, as are rounds.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        every: int = 30,
        keep: Optional[int] = 64,
        chunk: int = 4096,
        value_bits: ValueBits = 2,
        *,
        decay: float = 0.95,
        average: Optional[Average] = None,
        outer: Outer = "sgd",
        outer_lr: Optional[float] = None,
        outer_momentum: float = 0.9,
        warmup_steps: int = 0,
        warmup_rounds: int = 0,
        parts: int = 1,
        delay: int = 0,
        minimum: int = 1,
        deadline_s: Optional[float] = None,
        clip: Optional[Clip] = None,
        small: int = 4096,
        buffers: bool = True,
        comm: Any = None,
    ) -> None:
        self.comm = default_comm(comm)
        self._module = module
        self._named = trained(module)
        if average is None:
            average = "all" if keep is None else "senders"
        options: dict[str, Any] = dict(
            every=every, keep=keep, chunk=chunk, value_bits=value_bits, decay=decay,
            average=average, outer=outer, outer_lr=outer_lr, outer_momentum=outer_momentum,
            warmup_steps=warmup_steps, warmup_rounds=warmup_rounds, parts=parts, delay=delay,
            minimum=minimum, deadline_s=deadline_s, clip=clip, small=small, buffers=buffers,
        )  # fmt: skip
        agree(
            self.comm,
            lambda: check(options, self._named, self.comm, module),
            lambda _: {**{n: repr(value) for n, value in options.items()}, **_shapes(module)},
        )
        self._shown = {name: value for name, value in options.items() if value is not None}
        self._keep, self._decay, self._senders = keep, decay, average == "senders"
        self._momentum = outer_momentum if outer == "nesterov" else 0.0
        self._lr = outer_lr if outer_lr is not None else (0.7 if self._momentum else 1.0)
        self._intervals = rising(max(every // parts, 1), warmup_steps)
        self._delay, self._minimum, self._deadline = delay, minimum, deadline_s
        self._clip = clip is not None
        self._buffers = [
            b for b in module.buffers() if buffers and b.dtype.is_floating_point and b.numel()
        ]
        broadcast_parameters(module, comm=self.comm)
        self._parts = [
            _Part(Layout(own, chunk, small, keep is None), keep, value_bits, warmup_rounds)
            for own in shared_out(list(self._named.values()), parts)
        ]
        self.rounds = 0  # complete ones
        self.steps = 0
        self.last: Optional[Round] = None
        self._since = 0  # steps since the last round began
        self._steps_of = [0] * parts  # steps that each part has not given yet
        self._flight: Optional[_Flight] = None
        self._thread: Optional[_Behind] = None
        self._began = time.monotonic()

    def __repr__(self) -> str:
        shown = " ".join(f"{name}={value}" for name, value in self._shown.items())
        return f"<rill.torch.LocalUpdates {shown} ranks={self.comm.size} rounds={self.rounds}>"

    def __getstate__(self) -> Any:
        raise TypeError("LocalUpdates can't be copied or pickled; save its state_dict()")

    # ---- steps and rounds ----

    def step(self) -> bool:
        """After each step of the optimizer. Whether a round was completed and applied."""
        self.steps += 1
        self._since += 1
        self._steps_of = [n + 1 for n in self._steps_of]
        if self._flight is not None:
            return self._end() if self._since >= self._delay_of(self._flight) else False
        late = self._deadline is not None and time.monotonic() - self._began > self._deadline
        if self._since < self._interval_before(self.rounds) and not late:
            return False
        return self.synchronize()

    @property
    def steps_left(self) -> int:
        """Until the step that begins the next round, if no deadline comes before it."""
        number = self.rounds + (self._flight is not None)
        return self._interval_before(number) - self._since

    def _interval_before(self, number: int) -> int:
        """Steps from one round to that one: all ranks have had the same rounds."""
        ends, lengths = self._intervals
        return lengths[bisect_right(ends, number)]

    def _delay_of(self, flight: _Flight) -> int:
        """Its round ends before the next one begins, which comes soon at first."""
        return min(self._delay, self._interval_before(flight.number + 1) - 1)

    def synchronize(self) -> bool:
        """Has a round now; with ``delay=`` it is completed by later steps. Collective."""
        if self._flight is not None:
            self._end()
        flight = self._begin()
        return self._end() if self._delay_of(flight) == 0 else False

    @torch.no_grad()
    def _begin(self) -> _Flight:
        number = self.rounds % len(self._parts)
        part = self._parts[number]
        coding = part.coding(self.rounds // len(self._parts))
        now = part.layout.read(part.layout.parameters)
        difference = part.difference(now)
        steps = self._steps_of[number]
        if not bool(torch.isfinite(difference.sum(dtype=torch.float64))):  # one pass, in any case
            steps = 0  # the others need not know why
        error = part.error * self._decay + difference if steps else part.error
        if coding is None:
            sent = Sent(b"", error.clone() if steps else torch.zeros_like(error))
        else:
            sent = coding.encode(error, self.rounds, steps, self._read_buffers())
        if steps:
            error = error - sent.values
        flight = _Flight(self.rounds, part, coding, now, error, sent, steps)
        self._flight, self._since = flight, 0
        if self._delay_of(flight) and self.comm.size > 1:
            self._thread = _Behind(self._call_of(flight))
        return flight

    def _end(self) -> bool:
        flight = self._flight
        assert flight is not None
        try:
            messages, mean = self._exchange(flight)
        except PeerError:
            self._meet()
            if self._flight is not None:
                return self._end()  # else one who had completed it has told
        else:
            self._finish(flight, messages, mean)
        return self.last is not None and self.last.contributions > 0

    def _call_of(self, flight: _Flight) -> Callable[[], Any]:
        """What sends a contribution and gives those of all ranks: as messages; or, where they are
        summed on the way, each rank's steps and the sum."""
        if flight.coding is not None:
            return lambda: gather(self.comm, flight.sent.message)
        buffers = self._read_buffers() * bool(flight.steps)
        vector = torch.cat([flight.sent.values.cpu(), buffers])
        return lambda: (self.comm._gather(flight.steps), _summed(self.comm, vector))

    def _exchange(self, flight: _Flight) -> "tuple[list[bytes], Optional[torch.Tensor]]":
        """All messages; and the mean, where it is summed on the way."""
        thread, self._thread = self._thread, None
        found = self._call_of(flight)() if thread is None else thread.result()
        if flight.coding is not None:
            return found, None
        givers = sum(map(bool, found[0]))
        mean = found[1] / max(givers, 1)
        if givers >= self._minimum:
            self._write_buffers(mean[flight.start.numel() :])
        return [b""] * givers, mean[: flight.start.numel()].to(flight.start.device)

    @torch.no_grad()
    def _finish(self, flight: _Flight, messages: list[bytes], mean: Optional[torch.Tensor]) -> None:
        part, coding, device = flight.part, flight.coding, flight.start.device
        if mean is None:
            assert coding is not None
            decoded = [coding.decode(message) for message in messages]
            given = [one for one in decoded if one is not None]
            if len(given) >= max(self._minimum, 1):
                if self._clip:
                    clip_to_median(coding, given)
                mean = mean_of(coding, given, self._senders, device)
                self._write_buffers(torch.stack([one.buffers for one in given]).mean(0))
            count = len(given)
        else:
            count = len(messages)
        enough = count >= max(self._minimum, 1) and mean is not None
        number, self.rounds = self.rounds, self.rounds + 1
        size, coded = part.dense_bytes, coding is not None
        self.last = Round(
            number,
            count if enough else 0,
            len(flight.sent.message) if coded else size,
            sum(map(len, messages)) - len(flight.sent.message) if coded else size,
            size,
        )
        if enough:
            assert mean is not None
            if self._momentum:
                if part.velocity is None:
                    part.velocity = torch.zeros_like(mean)
                part.velocity.mul_(self._momentum).add_(mean)
                mean = mean + self._momentum * part.velocity
            part.common = part.common + self._lr * mean
            self._adopt(flight)
        self._flight, self._began = None, time.monotonic()

    def _adopt(self, flight: _Flight) -> None:
        """The parameters become the common ones."""
        part = flight.part
        part.error = flight.error
        now = part.common
        if self._delay and flight.steps:  # what was trained meanwhile stays
            now = now + (part.layout.read(part.layout.parameters) - flight.start)
        part.write(now)
        self._steps_of[self._parts.index(part)] = self._since if self._delay else 0

    def _read_buffers(self) -> torch.Tensor:
        parts = [b.detach().to("cpu", torch.float32).reshape(-1) for b in self._buffers]
        return torch.cat(parts) if parts else torch.empty(0)

    @torch.no_grad()
    def _write_buffers(self, mean: torch.Tensor) -> None:
        for buffer, part in zip(self._buffers, mean.split([b.numel() for b in self._buffers])):
            buffer.copy_(part.reshape(buffer.shape))

    # ---- other ranks ----

    def _meet(self) -> None:
        """A rank has died in a round, which some have completed and others have not."""
        while True:
            self.comm = self.comm.shrink()
            try:
                return self._agree_on_rounds()
            except PeerError:
                pass  # one more, while they met

    @torch.no_grad()
    def _agree_on_rounds(self) -> None:
        """Who is behind takes over the round all at once, or nothing of it: then it can tell
        others, if one more dies meanwhile."""
        rounds = self.comm._gather(self.rounds)
        ahead = max(rounds)
        if min(rounds) == ahead:
            return
        leader = rounds.index(ahead)
        contributions = self.comm._gather(self.last.contributions if self.last else 0)[leader]
        part = self._parts[(ahead - 1) % len(self._parts)]
        taken = self._fetch(part, leader) if contributions else None
        buffers = [b.clone() for b in self._buffers if taken is not None]  # they are averaged, too
        broadcast_tensors(buffers, leader, self.comm)
        flight = self._flight
        if self.rounds == ahead or flight is None:
            return
        self.rounds = ahead
        if taken is not None:  # with this rank's contribution
            part.common, part.velocity = taken
            self._adopt(flight)
            for buffer, averaged in zip(self._buffers, buffers):
                buffer.copy_(averaged)
        self.last = Round(ahead - 1, contributions, len(flight.sent.message), 0, part.dense_bytes)
        self._flight, self._began = None, time.monotonic()

    def _fetch(self, part: _Part, leader: int) -> "tuple[torch.Tensor, Optional[torch.Tensor]]":
        """The leader's common weights of a part, and their velocity. Collective."""
        moves = bool(self.comm._gather(part.velocity is not None)[leader])
        own = part.velocity if part.velocity is not None else torch.zeros_like(part.common)
        found = []
        for vector in (part.common, own) if moves else (part.common,):
            memory = vector.to("cpu", copy=True).contiguous()
            self.comm._bcast_bytes(memory.view(torch.uint8).numpy(), leader)
            found.append(memory.to(vector.device))
        return found[0], (found[1] if moves else None)

    @torch.no_grad()
    def move(self, comm: Comm) -> None:
        """Goes on on another communicator: ranks have joined, or left. Who is behind, or new,
        takes the weights and buffers of the rank that is ahead. Between rounds; collective on
        it."""
        if self._flight is not None:
            raise RuntimeError("a round is under way: move after step() has returned True")
        self.comm = comm
        rounds = comm._gather(self.rounds)
        leader = rounds.index(max(rounds))
        taken = [self._fetch(part, leader) for part in self._parts]
        behind = self.rounds < rounds[leader]
        broadcast_tensors(self._module.buffers(), leader, comm, take=behind)
        for part, (common, velocity) in zip(self._parts, taken):
            part.common, part.velocity = common, velocity
            if behind:
                part.error.zero_()
                part.write(common)
        if behind:
            self.rounds, self._steps_of = rounds[leader], [0] * len(self._parts)
        self._since, self._began = 0, time.monotonic()

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """The common weights, and the sum of what all ranks have not sent: the same on all ranks,
        and good for any number of them. What was trained since the last round is not in it: take
        it where ``step()`` has returned True. Collective."""
        self._end_flight()
        state: dict[str, Any] = {"format": _FORMAT, "rounds": self.rounds, "steps": self.steps}
        for kind in ("common", "error", "velocity"):
            state[kind] = {}
        names = {id(p): name for name, p in self._named.items()}
        for part in self._parts:
            total = _summed(self.comm, part.error.cpu().clone())
            velocity = torch.zeros_like(part.common) if part.velocity is None else part.velocity
            for kind, vector in ("common", part.common), ("error", total), ("velocity", velocity):
                made = [torch.empty(p.shape) for p in part.layout.parameters]
                part.layout.write(vector.cpu(), made)
                own = [names[id(p)] for p in part.layout.parameters]
                state[kind].update(zip(own, made))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the weights of a state_dict, which the parameters get. Collective."""
        check_state(state, _FORMAT, self._named)
        names = {id(p): name for name, p in self._named.items()}
        for part in self._parts:
            own, device = [names[id(p)] for p in part.layout.parameters], part.common.device
            read: Callable[[str], torch.Tensor] = lambda kind: part.layout.read(
                [state[kind][name].to(device) for name in own]
            )
            part.common, part.velocity = read("common"), read("velocity")
            part.error = read("error") / self.comm.size
            part.write(part.common)
        self.rounds, self.steps = int(state["rounds"]), int(state["steps"])
        self._since, self._steps_of = 0, [0] * len(self._parts)
        self._continue()

    def _end_flight(self) -> None:
        if self._flight is not None:
            self._end()

    def _continue(self) -> None:
        self._flight, self._began = None, time.monotonic()


def _shapes(module: torch.nn.Module) -> dict[str, str]:
    """What ranks must have in common besides the options. Names may differ by a wrapper."""
    found = {}
    for name, p in named_parameters(module).items():
        frozen = "" if p.requires_grad else ", frozen"
        found[f"parameter {name}"] = f"{tuple(p.shape)} of {p.dtype}{frozen}"
    return found


def _summed(comm: Comm, vector: torch.Tensor) -> torch.Tensor:
    """Over all ranks, in place."""
    stream = as_stream(vector.numpy())
    comm.allreduce(stream, stream, algorithm="dense", value_bits=0, allow_bits=0)
    stream.dense(vector.numpy())
    return vector


class _Behind:
    """A call in a thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._result: Any = None
        self._failure: Optional[BaseException] = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._failure = error

    def result(self) -> Any:
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._result
