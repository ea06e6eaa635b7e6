"""Files of local updates, with which training goes on bit by bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from .._comm import Comm
from ._groups import _shares_errors
from ._local_options import check_shapes

_FORMAT = 1


class Files:
    """``save`` and ``load`` of LocalUpdates: a file of each rank, and one that is written last."""

    comm: Comm
    rounds: int
    steps: int
    _named: dict[str, torch.Tensor]
    _parts: list[Any]
    _since: int
    _steps_of: list[int]

    def _end_flight(self) -> None:
        raise NotImplementedError

    def _continue(self) -> None:
        raise NotImplementedError

    @_shares_errors
    def save(self, folder: "os.PathLike[str] | str") -> None:
        """Writes all that later rounds depend on to files in a folder that all ranks see, at any
        step: common weights, this rank's own ones, and what it has not sent. The state of its
        optimizer is the caller's to save, on each rank. Collective."""
        self._end_flight()
        place = Path(folder)
        if self.comm.rank == 0:
            place.mkdir(parents=True, exist_ok=True)
            (place / "local.json").unlink(missing_ok=True)
        self.comm._agree()
        own: dict[str, Any] = {"since": self._since, "steps_of": self._steps_of, "parts": []}
        for part in self._parts:
            now = part.layout.read(part.layout.parameters)
            kept = {"error": part.error, "now": now, "rounding": part.rounding}
            own["parts"].append({n: t if t is None else t.cpu() for n, t in kept.items()})
        torch.save(own, place / f"local-{self.comm.rank}.pt")
        if self.comm.rank == 0:
            common = [
                {n: t if t is None else t.cpu() for n, t in vars_of(part).items()}
                for part in self._parts
            ]
            torch.save(common, place / "local.pt")
        self.comm._agree()
        if self.comm.rank == 0:
            about = {
                "format": _FORMAT, "ranks": self.comm.size, "rounds": self.rounds,
                "steps": self.steps,
                "shapes": {name: list(p.shape) for name, p in self._named.items()},
            }  # fmt: skip
            (place / "local.json").write_text(json.dumps(about))
        self.comm._agree()

    @_shares_errors
    def load(self, folder: "os.PathLike[str] | str") -> None:
        """Goes on where ``save`` was called: bit by bit with the same number of ranks. With
        another all begin with the common weights, and what was not sent is shared out evenly.
        Collective."""
        self._end_flight()
        place = Path(folder)
        about = json.loads((place / "local.json").read_text())
        if about.get("format") != _FORMAT:
            raise ValueError(f"{place} has format {about.get('format')!r}, {_FORMAT} is known")
        if "shapes" in about:  # files of an earlier tree have none
            check_shapes(about["shapes"], self._named, str(place))
        common = read(place / "local.pt")
        same = about["ranks"] == self.comm.size
        ranks = [self.comm.rank] if same else range(about["ranks"])
        every = [read(place / f"local-{rank}.pt") for rank in ranks]
        sizes = [part.common.numel() for part in self._parts]
        if [part["common"].numel() for part in common] != sizes:
            raise ValueError(f"{place} has other parts, chunks or small=, or is of another model")
        self.comm._agree()
        for number, part in enumerate(self._parts):
            device = part.common.device
            part.common = common[number]["common"].to(device)
            velocity = common[number]["velocity"]
            part.velocity = None if velocity is None else velocity.to(device)
            errors = [one["parts"][number]["error"] for one in every]
            total = errors[0] if same else sum(errors[1:], errors[0]) / self.comm.size
            part.error = total.to(device)
            if same:
                own = every[0]["parts"][number]
                part.layout.write(own["now"].to(device), part.layout.parameters)
                part.rounding = None if own["rounding"] is None else own["rounding"].to(device)
            else:
                part.write(part.common)
        self.rounds, self.steps = about["rounds"], about["steps"]
        self._since = every[0]["since"] if same else 0
        self._steps_of = list(every[0]["steps_of"]) if same else [0] * len(self._parts)
        self._continue()


def vars_of(part: Any) -> dict[str, Any]:
    """What all ranks have alike."""
    return {"common": part.common, "velocity": part.velocity}


def read(path: Path) -> Any:
    """What torch.save has written; what torch.load says of other files has no name in it."""
    try:
        return torch.load(path)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged, or none of these files: {error}") from error
