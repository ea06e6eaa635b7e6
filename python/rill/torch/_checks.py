"""Options are checked where they are given, and a mistake of one rank is an error on all: training
would hang or part ways later."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, TypeVar

from .._comm import Comm
from .._library import algorithms
from .._reducer import Reducer
from .._settings import option_names, unknown
from .._structs import reducer_options

Result = TypeVar("Result")


def check_method(name: Any) -> None:
    """A method's name without its coding."""
    if not isinstance(name, str):
        raise TypeError(f"method {name!r} is no name")
    known = {"auto", "dense", "topk", *algorithms("allreduce"), *algorithms("reducer")}
    base = name.partition("+")[0]
    if base not in known:
        raise ValueError(unknown("method", base, known))


def check_options(options: Mapping[str, Any], others: Iterable[str] = ()) -> None:
    """Names, types, and what is often mistaken; the rest is the library's, see try_options.
    ``others``: names that the caller has besides."""
    names = option_names("rill_reducer_options")
    known = [name for name in names if name not in ("memory", "device")]  # gradients have theirs
    for name in options:
        if name not in known:
            raise TypeError(unknown("option", name, [*known, *others]))
    density = options.get("density")
    if density is not None:
        if isinstance(density, str) or not 0 < float(density) <= 1:
            raise ValueError(
                f"density = {density!r}: a share in (0, 1] is needed, such as 0.01 for 1 %"
            )
    warmup = options.get("warmup")
    if warmup is not None and (isinstance(warmup, str) or not hasattr(warmup, "__iter__")):
        raise TypeError(
            f"warmup = {warmup!r}: a list of densities is needed; the steps at each are "
            "warmup_steps"
        )
    reducer_options(options)


def try_options(comm: Comm, options: Mapping[str, Any]) -> None:
    """Has the library check values and names, by a reducer that is not used. Collective."""
    Reducer(comm, 1024, **{name: value for name, value in options.items() if name != "k"}).free()


def agree(
    comm: Comm, check: Callable[[], Result], describe: Callable[[Result], Mapping[str, str]]
) -> Result:
    """What check gives on this rank. It is an error on all ranks if it raises on one, or if
    ``describe`` of it differs between ranks. Collective."""
    failure, result = None, None
    mine: Any
    try:
        result = check()
        mine = dict(describe(result))
    except Exception as error:
        failure, mine = error, f"{type(error).__name__}: {error}"
    everyone = comm._gather(mine)
    if failure is not None:
        raise failure
    for rank, other in enumerate(everyone):
        if isinstance(other, str):
            raise ValueError(f"rank {rank} has failed: {other}")
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for name in sorted({*first, *other}):
            if first.get(name) != other.get(name):
                raise ValueError(
                    f"ranks differ: {name} is {first.get(name)} on rank 0 and {other.get(name)} "
                    f"on rank {rank}"
                )
    return result  # type: ignore[return-value]
