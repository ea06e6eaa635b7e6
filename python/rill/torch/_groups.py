"""Parameters that share a reducer, and checkpoints of what they have not sent."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from .. import _launch
from .._buffers import type_of
from .._comm import Comm
from .._reducer import Reducer, float32_of
from .._steps import BehindStep, Step
from .._stream import as_stream
from .._world import from_group, world
from ._device import reducer_memory, runtime
from ._follow import Followed
from ._rules import Chooser

_FORMAT = 1


class Member(NamedTuple):
    """A parameter within a group."""

    name: str
    count: int  # type: ignore[assignment]


def _shares_errors(method: Callable[..., None]) -> Callable[..., None]:
    """What goes wrong on one rank, such as a folder that can't be made, is an error on all: at
    their next call of the communicator."""

    @functools.wraps(method)
    def sharing(self: "Checkpointed", folder: "os.PathLike[str] | str") -> None:
        with self.comm._shares_errors["allreduce"]:
            method(self, folder)

    return sharing


class Group:
    """A reducer over parameters that lie one after the other."""

    def __init__(
        self,
        comm: Comm,
        dtype: Any,
        members: Sequence[Member],
        rule: int,
        options: Mapping[str, Any],
        device: Optional[torch.device] = None,
        warm: bool = False,
    ) -> None:
        self.members = list(members)
        self.warm = warm  # made when the warm-up was over
        self.device = device  # whose memory the reducer works in; None: the host
        self.begun = False  # in this step
        self.voids = options.get("nonfinite") in (None, "void")
        self.rule = rule
        self.feeds_back = bool(options.get("feedback", True))
        self.keeps = options.get("algorithm") != "dense" or bool(
            options.get("value_bits")
        )  # whether anything waits here
        dim = sum(m.count for m in members)
        self.reducer = Reducer(comm, dim, dtype, **{**options, **reducer_memory(device)})

    def prepare(self, tensors: Sequence[torch.Tensor]) -> Step:
        """A step in place, which start() begins, as often as wanted."""
        if self.device is not None:
            return self.reducer._prepare_on(tensors)
        return (
            self.reducer._prepare(tensors[0])
            if len(tensors) == 1
            else self.reducer._prepare_tensors(tensors)
        )

    def start(self, step: Step) -> Step:
        """Starts a step that was prepared."""
        if isinstance(step, BehindStep):  # the kernels that fill the gradients are on this stream
            step.start(runtime.stream(self.device))
        else:
            step.start()
        self.begun = True
        return step

    def residuals(self) -> dict[str, torch.Tensor]:
        """A copy for each parameter, in the memory of the host."""
        return self._by_member(self.reducer._residual())

    def momenta(self) -> dict[str, torch.Tensor]:
        """Likewise; none without momentum."""
        momentum = self.reducer._momentum()
        return {} if momentum is None else self._by_member(momentum)

    def _by_member(self, view: Any) -> dict[str, torch.Tensor]:
        if self.device is None:
            whole = torch.from_numpy(float32_of(self.reducer, view))
        else:
            there = runtime.tensor(view, self.reducer.type, self.device)
            double = there.dtype is torch.float64
            whole = there.to("cpu", torch.float64 if double else torch.float32)
            whole = whole.clone() if whole is there else whole
        return dict(
            zip((m.name for m in self.members), whole.split([m.count for m in self.members]))
        )

    def feed(self, kept: dict[str, torch.Tensor], momenta: dict[str, torch.Tensor]) -> None:
        """Takes over what there is for its parameters."""
        residual, momentum = self._fused(kept), self._fused(momenta)
        has_momentum = self.reducer._momentum() is not None
        if residual is not None and not self.feeds_back:
            self.reducer.accumulate(residual)
            residual = None
        if residual is not None or (momentum is not None and has_momentum):
            self.reducer.keep(residual, momentum if has_momentum else None)

    def scale_momentum(self, factor: float) -> None:
        """Gradients have another scale from now on."""
        more = self._fused({name: part * (factor - 1) for name, part in self.momenta().items()})
        if more is not None:
            self.reducer.keep(momentum=more)

    def _fused(self, kept: dict[str, torch.Tensor]) -> Optional[torch.Tensor]:
        """What there is for its parameters, as the reducer has it."""
        if not any(m.name in kept for m in self.members):
            return None
        from ._tensors import torch_dtype

        parts = []
        for m in self.members:
            part = kept.pop(m.name, None)
            if part is None:
                part = torch.zeros(m.count)
            elif part.numel() != m.count:
                raise ValueError(
                    f"the residual of {m.name} has {part.numel()} values, the parameter {m.count}"
                )
            parts.append(part.reshape(-1).to(torch_dtype(self.reducer.type)))
        return torch.cat(parts).to(self.device or "cpu")


class Flight(NamedTuple):
    """What a group gets and gives in a step."""

    group: Group
    parts: Sequence[torch.Tensor]  # memory of its members, with the update once it is there
    parameters: Sequence[torch.Tensor]

    def give_back(self) -> None:
        """Nobody applies the update: it is kept for later steps. What is summed whole keeps
        nothing, as plain DDP."""
        if not self.group.keeps:
            return
        first = 0
        for part in self.parts:
            self.group.reducer.give_back(first, part.reshape(-1))
            first += part.numel()


class Checkpointed:
    """state_dict and files of objects that have groups.

    Two ways. ``state_dict`` has, for each parameter, the sum of what all ranks have not sent yet:
    the same on all ranks, of the size of the model, and good for any number of ranks. ``save`` and
    ``load`` keep each rank's state: with the same number of ranks and the same groups training goes
    on bit by bit. All of these are collective: call them on every rank, also where only one writes.
    """

    comm: Comm
    _kept: dict[str, torch.Tensor]  # what new groups are to take over
    _kept_momenta: dict[str, torch.Tensor]
    _names: dict[int, str]
    _counts: Mapping[str, int] = {}  # values of parameters that state_dict always has
    _followed: Followed
    _chooser: Chooser
    steps: int
    _earlier = 0  # steps before the state_dict that was loaded
    _dense_steps = 0  # which make no groups

    def _all_groups(self) -> list[tuple[int, Group]]:
        """With the number of the bucket that a group is of."""
        raise NotImplementedError

    def _drop_groups(self) -> None:
        raise NotImplementedError

    def _add_group(self, bucket: int, group: Group) -> None:
        raise NotImplementedError

    def _make_group(
        self,
        bucket: int,
        dtype: Any,
        members: Sequence[Member],
        rule: int,
        device: Optional[torch.device],
        warm: Optional[bool] = None,
    ) -> Group:
        """warm: whether the warm-up is over; by default that is known by the steps so far."""
        if warm is None:
            length = self._chooser.warmup_steps(rule)
            warm = 0 < length <= self._earlier + max(self.steps - self._dense_steps, 0)
        options = self._chooser.options(rule, warm)
        group = Group(self.comm, dtype, members, rule, options, device, warm)
        self._add_group(bucket, group)
        return group

    def _device_of(self, name: str) -> Optional[torch.device]:
        """Whose memory the reducer of a parameter is to work in. Collective."""
        raise NotImplementedError

    def __getstate__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} can't be copied or pickled: its ranks belong together; save "
            "its state_dict()"
        )

    def _settle(self) -> None:
        """Waits for what is under way."""

    def wait(self) -> None:
        """Waits for exchanges under way."""
        self._settle()

    def follow(self, what: Any) -> None:
        """Follows an optimizer, a GradScaler, or with two calls both; when does not matter, also
        not before or after a checkpoint is loaded.

        An optimizer: what waits to be sent counts with the learning rate that it was computed at,
        not with the one at which it is sent, as if the rate were in the gradients (SparCML and
        Ok-Topk have it there). For SGD with a rate that changes; Adam divides scales out. The rate
        is that of the optimizer's first group of parameters.

        A GradScaler, or whatever has ``get_scale()``: what waits is scaled along when the scale of
        the loss changes.
        """
        self._followed.follow(what)

    def _follow(self) -> None:
        """To be called before the exchanges of a step, with nothing under way."""
        rate, scale = self._followed.factors()
        if rate * scale != 1:
            for _, group in self._all_groups():
                group.reducer.scale(rate * scale)
            for part in self._kept.values():
                part.mul_(rate * scale)
        if scale != 1:  # the rate is applied to what comes of the momentum
            for _, group in self._all_groups():
                group.scale_momentum(scale)
            for part in self._kept_momenta.values():
                part.mul_(scale)

    def _need_names(self, what: str) -> None:
        with self.comm._shares_errors["allreduce"]:
            if not self._names:
                raise ValueError(
                    f"{what} needs the names of the parameters: give State(module=model)"
                )
        self.comm._agree()

    def _residuals(self) -> dict[str, torch.Tensor]:
        """Of this rank, by parameter; including what no group has taken over yet."""
        residuals = {name: part.clone().reshape(-1) for name, part in self._kept.items()}
        for _, group in self._all_groups():
            add_to(residuals, group.residuals())
        return residuals

    def _momenta(self) -> dict[str, torch.Tensor]:
        """Likewise."""
        momenta = {name: part.clone().reshape(-1) for name, part in self._kept_momenta.items()}
        for _, group in self._all_groups():
            add_to(momenta, group.momenta())
        return momenta

    def state_dict(self) -> dict[str, Any]:
        """What has not been sent yet, by parameter; and momenta, where reducers have them.
        Collective."""
        self._need_names("state_dict")
        self._settle()
        found = {"residuals": self._residuals()}
        if any(options.get("momentum") for options in self._chooser.all_options()):
            found["momenta"] = self._momenta()
        for mine in found.values():
            for name, count in self._counts.items():  # torch.distributed.checkpoint needs them
                mine.setdefault(name, torch.zeros(count))
        return {
            "format": _FORMAT,
            **{kind: self._summed(mine) for kind, mine in found.items()},
            "steps": self._earlier + self.steps,
            **self._followed.state(),
        }

    def _summed(self, mine: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Over all ranks. Collective."""
        # Ranks may hold different names only after a load that gave them different ones; agree on
        # all.
        everyone = self.comm._gather([(name, part.numel()) for name, part in mine.items()])
        sizes = {name: count for part in everyone for name, count in part}
        residuals = {}
        for name in sorted(sizes):
            part = mine.get(name, torch.zeros(sizes[name])).to(torch.float64).contiguous()
            stream = as_stream(part.numpy())
            self.comm.allreduce(stream, stream, algorithm="dense", value_bits=0, allow_bits=0)
            stream.dense(part.numpy())
            residuals[name] = part.to(torch.float32)
        return residuals

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the residuals and momenta of a state_dict, shared out evenly among the
        ranks. Collective."""
        self._need_names("load_state_dict")
        found = state.get("format") if isinstance(state, Mapping) else type(state).__name__
        if found != _FORMAT:
            raise ValueError(f"the state has format {found!r}, {_FORMAT} is known")
        for name, part in state["residuals"].items():
            count = self._counts.get(name, part.numel())
            if count != part.numel():
                raise ValueError(
                    f"the state is of another model: the residual of {name} has {part.numel()} "
                    f"values, the parameter {count}"
                )
        self._settle()
        self._drop_groups()
        self._kept = self._share(state["residuals"])
        self._kept_momenta = self._share(state.get("momenta", {}))
        self._earlier = int(state.get("steps", 0))
        self._followed.load(state)

    def _share(self, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: part.to(torch.float32) / self.comm.size for name, part in parts.items()}

    @_shares_errors
    def save(self, folder: "os.PathLike[str] | str") -> None:
        """Writes everything that later steps depend on to files in a folder that all ranks see.
        Collective."""
        self._need_names("save")
        self._settle()
        place = Path(folder)
        if self.comm.rank == 0:
            place.mkdir(parents=True, exist_ok=True)
        self.comm._agree()
        index = []
        for i, (bucket, group) in enumerate(self._all_groups()):
            file = f"reducer-{i}.rill"
            group.reducer.save(place / file)
            index.append(
                {
                    "file": file,
                    "bucket": bucket,
                    "type": group.reducer.type.name.lower(),
                    "rule": group.rule,
                    "warm": group.warm,
                    "members": [list(m) for m in group.members],
                }
            )
        # After load_state_dict, until groups take it over.
        waiting, momenta = self._summed(self._kept), self._summed(self._kept_momenta)
        if self.comm.rank == 0:
            if waiting:
                torch.save(waiting, place / "waiting.pt")
            if momenta:
                torch.save(momenta, place / "momenta.pt")
            written = place / "index.json.part"
            about: dict[str, Any] = {
                "format": _FORMAT,
                "ranks": self.comm.size,
                "steps": self.steps,
                "earlier": self._earlier,
                "waiting": bool(waiting),
                "momenta": bool(momenta),
                **self._followed.state(),
            }
            written.write_text(json.dumps({**about, "groups": index}))
            written.replace(place / "index.json")
        self.comm._agree()

    @_shares_errors
    def load(self, folder: "os.PathLike[str] | str") -> None:
        """Goes on where ``save`` was called, also with another number of ranks: nothing is lost
        then. Collective."""
        self._need_names("load")
        self._settle()
        self._drop_groups()
        self._kept, self._kept_momenta = {}, {}
        place = Path(folder)
        index = json.loads((place / "index.json").read_text())
        if index.get("format") != _FORMAT:
            raise ValueError(f"{place} has format {index.get('format')!r}, {_FORMAT} is known")
        self.comm._agree()
        for entry in index["groups"]:
            members = [Member(*m) for m in entry["members"]]
            kind, device = type_of(entry["type"]), self._device_of(members[0].name)
            warm = entry.get("warm", False)
            group = self._make_group(entry["bucket"], kind, members, entry["rule"], device, warm)
            group.reducer.load(place / entry["file"])
        if index.get("waiting"):
            self._kept = self._share(torch.load(place / "waiting.pt"))
        if index.get("momenta"):
            self._kept_momenta = self._share(torch.load(place / "momenta.pt"))
        self._followed.load(index)
        self.steps = index.get("steps", self.steps)
        self._earlier = index.get("earlier", 0)


def add_to(found: dict[str, torch.Tensor], parts: Mapping[str, torch.Tensor]) -> None:
    for name, part in parts.items():
        found[name] = found[name] + part if name in found else part


def names_of(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[int, str]:
    """Names by identity; DistributedDataParallel's prefix is left out, so that checkpoints fit with
    and without it."""
    pairs = list(parameters)
    start = len("module.") if all(name.startswith("module.") for name, _ in pairs) else 0
    return {id(p): name[start:] for name, p in pairs}


def default_comm(comm: Any) -> Comm:
    """All ranks, which must then be those of PyTorch's process group, if there is one; or those of
    comm: a communicator of rill's or of mpi4py, or a process group."""
    if isinstance(comm, Comm):
        return comm
    if comm is not None:
        return from_group(comm) if isinstance(comm, dist.ProcessGroup) else Comm(comm)
    made = world()
    if dist.is_initialized() and dist.get_world_size() != made.size:
        ranks = dist.get_world_size()
        have = f"MPI {made.size}" if made.mpi is not None else f"rill.world() {made.size}"
        why = (
            f"PyTorch's process group has {ranks} ranks, {have}; comm= takes the group, or a "
            "communicator with its ranks"
        )
        raise RuntimeError(_launch.message(ranks, why))
    return made
