"""librill.so: where it is, its functions, and the one way from a status to an exception."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Iterator

VERSION = "0.1"  # of the library that this package is written for

STATUS_NAMES = {
    -1: "ARGUMENT", -2: "RANGE", -3: "UNKNOWN", -4: "UNSUPPORTED", -5: "MISMATCH", -6: "MESSAGE",
    -7: "OVERLAP", -8: "MEMORY", -9: "MPI", -10: "STATE", -11: "IO", -12: "PEER",
}  # fmt: skip


_PEER = -12


class RillError(RuntimeError):
    """A call of the C library failed.

    ``status`` is the negative ``rill_status``, ``name`` its name ("ARGUMENT", "MISMATCH", ...), and
    ``detail`` the library's sentence, which names the argument and its value.
    """

    _shared = False  # whether the other ranks know of it

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.name = STATUS_NAMES.get(status, str(status))
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.detail)


class PeerError(RillError):
    """A rank is gone; the text names it. ``comm.failed()`` lists those that are known to be gone,
    and ``comm.shrink()`` gives the living a communicator of their own."""


def _prefixes() -> Iterator[Path]:
    """Where ``make install PREFIX=...`` puts the library: this Python's environment, and the
    default of make."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix, "/usr/local")):
        for folder in ("lib", f"lib/{multiarch}", "lib64"):
            yield Path(prefix) / folder


def _candidates() -> Iterator[str]:
    given = os.environ.get("RILL_LIBRARY")
    if given:
        yield given
        return  # what was asked for is not replaced
    package = Path(__file__).resolve().parent
    yield str(package / "librill.so")  # as pip installs it
    yield str(package.parents[1] / "build" / "lib" / "librill.so")  # the package in the tree
    for folder in _prefixes():
        yield str(folder / f"librill.so.{VERSION}")
    yield f"librill.so.{VERSION}"
    try:
        found = subprocess.run(
            ["pkg-config", "--variable=libdir", "rill"], capture_output=True, text=True
        )
        if found.returncode == 0 and found.stdout.strip():
            yield str(Path(found.stdout.strip()) / "librill.so")
    except OSError:
        pass
    name = ctypes.util.find_library("rill")
    if name:
        yield name


def _load() -> ctypes.CDLL:
    failed = []
    for candidate in _candidates():
        if "/" in candidate and not Path(candidate).exists():
            continue
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            # It is there: the loader's sentence says what it lacks, such as the library of its MPI.
            if "/" in candidate:
                failed.append(f"{candidate} does not load: {error}")
    given = os.environ.get("RILL_LIBRARY")
    if given and not failed:
        failed.append(f"RILL_LIBRARY={given}: there is no such file")
    raise ImportError(
        "; ".join(failed or ["librill.so, the C library of rill, was not found"])
        + ". Either, in rill's source folder: pip install ./python (builds the library and takes "
        + f"it along); or: make install PREFIX={sys.prefix}; or set RILL_LIBRARY to its path. "
        + "scripts/setup python installs what a build needs."
    )


lib = _load()


class Fork:
    """Whether this process is a fork of the one that loaded the library, such as a worker of a
    DataLoader. It touches nothing of ours: threads and connections have stayed with the other."""

    forked = False

    @classmethod
    def _after(cls) -> None:
        cls.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Fork._after)

pointer = ctypes.c_void_p
u64 = ctypes.c_uint64
c_int = ctypes.c_int
text = ctypes.c_char_p


def _declare(name: str, result: Any, *arguments: Any) -> None:
    function = getattr(lib, name, None)
    if function is None:
        raise ImportError(
            f"{lib._name} has no {name}: it is older than this package. Build both from one tree: "
            "pip install ./python"
        )
    function.restype = result
    function.argtypes = list(arguments)


_BY_RESULT: dict[Any, dict[str, tuple[Any, ...]]] = {
    text: {
        "rill_version": (),
        "rill_isa": (),
        "rill_strerror": (c_int,),
        "rill_last_error": (),
        "rill_type_name": (c_int,),
        "rill_op_name": (pointer,),
        "rill_algorithm_at": (c_int, c_int, pointer),
        "rill_codec_at": (c_int, pointer),
        "rill_selector_at": (c_int, pointer),
        "rill_setting_at": (c_int, pointer),
    },
    c_int: {
        "rill_error_set": (c_int, text),
        "rill_op_create": (text, pointer, pointer, ctypes.c_double, ctypes.c_uint, pointer),
        "rill_op_free": (pointer,),
        "rill_stream_create": (c_int, u64, pointer),
        "rill_stream_create_in": (c_int, c_int, c_int, u64, pointer),
        "rill_stream_memory": (pointer,),
        "rill_stream_free": (pointer,),
        "rill_stream_set_pairs": (pointer, u64, pointer, pointer),
        "rill_stream_set_pairs64": (pointer, u64, pointer, pointer),
        "rill_stream_set_blocks": (pointer, u64, u64, pointer, pointer),
        "rill_stream_set_dense": (pointer, pointer),
        "rill_stream_get_dense": (pointer, pointer),
        "rill_stream_clear": (pointer,),
        "rill_stream_copy": (pointer, pointer),
        "rill_stream_type": (pointer,),
        "rill_stream_is_dense": (pointer,),
        "rill_stream_fill": (pointer, pointer),
        "rill_stream_to_dense": (pointer,),
        "rill_stream_to_sparse": (pointer,),
        "rill_stream_to_blocks": (pointer, u64),
        "rill_stream_validate": (pointer, pointer),
        "rill_stream_add": (pointer, pointer, pointer),
        "rill_stream_sum": (pointer, c_int, pointer, pointer),
        "rill_stream_concat": (pointer, pointer),
        "rill_comm_create_local": (c_int, pointer, pointer),
        "rill_bootstrap_create": (text, c_int, c_int, pointer),
        "rill_comm_create_ucx": (pointer, pointer, pointer),
        "rill_comm_failed": (pointer, c_int, pointer, pointer),
        "rill_comm_shrink": (pointer, pointer),
        "rill_comm_free": (pointer,),
        "rill_comm_progress_thread": (pointer, c_int),
        "rill_comm_stats": (pointer, pointer),
        "rill_device_at": (c_int, c_int, pointer, ctypes.c_size_t),
        "rill_device_wait": (c_int, pointer),
        "rill_comm_rank": (pointer,),
        "rill_comm_size": (pointer,),
        "rill_start": (pointer,),
        "rill_test": (pointer, pointer),
        "rill_wait": (pointer,),
        "rill_waitall": (c_int, pointer),
        "rill_waitany": (c_int, pointer, pointer),
        "rill_progress": (pointer,),
        "rill_request_stats": (pointer, pointer),
        "rill_request_free": (pointer,),
        "rill_reducer_create": (pointer, c_int, u64, pointer, pointer),
        "rill_reducer_free": (pointer,),
        "rill_reducer_step": (pointer, pointer, pointer),
        "rill_reducer_step_stream": (pointer, pointer, pointer),
        "rill_reducer_start_on": (pointer, pointer, pointer, pointer),
        "rill_reducer_start_tensors_on": (pointer, c_int, pointer, pointer),
        "rill_reducer_step_on": (pointer, pointer, pointer, pointer),
        "rill_reducer_step_tensors_on": (pointer, c_int, pointer, pointer),
        "rill_reducer_move": (pointer, pointer, pointer),
        "rill_reducer_update": (pointer, pointer),
        "rill_reducer_start": (pointer, pointer, pointer),
        "rill_reducer_start_stream": (pointer, pointer, pointer),
        "rill_reducer_test": (pointer, pointer),
        "rill_reducer_wait": (pointer,),
        "rill_reducer_accumulate": (pointer, pointer),
        "rill_reducer_scale": (pointer, ctypes.c_double),
        "rill_reducer_give_back": (pointer, u64, u64, pointer),
        "rill_reducer_keep": (pointer, pointer, pointer),
        "rill_reducer_step_tensors": (pointer, c_int, pointer),
        "rill_reducer_start_tensors": (pointer, c_int, pointer),
        "rill_reducer_stats": (pointer, pointer),
        "rill_reducer_save": (pointer, text),
        "rill_reducer_load": (pointer, text),
        "rill_plan": (pointer, pointer, c_int, pointer),
        "rill_indices_bound": (text, ctypes.c_uint, u64, u64, pointer),
        "rill_indices_encode": (text, ctypes.c_uint, pointer, u64, u64, u64, pointer, pointer),
        "rill_indices_decode": (
            text, ctypes.c_uint, pointer, ctypes.c_size_t, u64, u64, u64, pointer,
        ),
        "rill_selector_create": (c_int, u64, pointer, pointer),
        "rill_selector_free": (pointer,),
        "rill_select": (pointer, pointer, pointer),
        "rill_select_residual": (pointer, pointer, pointer, pointer),
        "rill_select_on": (pointer, pointer, pointer, pointer),
        "rill_select_residual_on": (pointer, pointer, pointer, pointer, pointer),
    },
    None: {"rill_bootstrap_free": (pointer,)},
    u64: {
        "rill_stream_nnz": (pointer,),
        "rill_stream_dim": (pointer,),
        "rill_stream_block": (pointer,),
        "rill_reducer_dim": (pointer,),
    },
    pointer: {
        "rill_stream_indices32": (pointer,),
        "rill_stream_indices64": (pointer,),
        "rill_stream_values": (pointer,),
        "rill_stream_blocks": (pointer, pointer),
        "rill_reducer_request": (pointer,),
        "rill_reducer_residual": (pointer,),
        "rill_reducer_momentum": (pointer,),
    },
}

if hasattr(lib, "rill_comm_create"):  # not in a library that was built without MPI
    lib.rill_comm_create.restype = c_int  # its arguments depend on the MPI: see _mpi.py
for _result, _functions in _BY_RESULT.items():
    for _name, _arguments in _functions.items():
        _declare(_name, _result, *_arguments)

# Arguments after the communicator, per collective; then the options and, where there is one, the
# request.
COLLECTIVES: dict[str, tuple[Any, ...]] = {
    "allreduce": (pointer, pointer, pointer),
    "reduce": (pointer, pointer, pointer, c_int),
    "reduce_scatter": (pointer, pointer, pointer, pointer, pointer),
    "allgather": (pointer, pointer),
    "bcast": (pointer, c_int),
}
for _name, _arguments in COLLECTIVES.items():
    _declare(f"rill_{_name}", c_int, pointer, *_arguments, pointer)
    _declare(f"rill_i{_name}", c_int, pointer, *_arguments, pointer, pointer)
    _declare(f"rill_{_name}_init", c_int, pointer, *_arguments, pointer, pointer)


# Dimensions of streams that nobody has: those of calls that the package makes by itself.
END_DIM, AGREE_DIM = 0x656E64, 0x6167726565
_OWN_CALLS = {
    END_DIM: "has ended its program",
    AGREE_DIM: "agrees with the others, as before a reducer is made, saved or loaded",
}


def _explained(detail: str) -> str:
    for dim, does in _OWN_CALLS.items():
        detail = re.sub(
            rf"another rank has dimension {dim}, this one \d+", f"another rank {does}", detail
        )
        detail = re.sub(
            rf"another rank has dimension \d+, this one {dim}",
            f"another rank is in a call, this one {does}",
            detail,
        )
    return detail


def check(status: int) -> None:
    """Raises RillError for a failed call. The detail is this thread's, so check in the thread that
    called."""
    if status >= 0:
        return
    detail = lib.rill_last_error() or lib.rill_strerror(status)
    kind = PeerError if status == _PEER else RillError
    raise kind(status, _explained(detail.decode(errors="replace")))


def check_shared(status: int) -> None:
    """As check, after a call whose failure all ranks know of."""
    if status < 0:
        try:
            check(status)
        except RillError as error:
            error._shared = True
            raise


def refuse(reason: str, call: Any, *arguments: Any) -> None:
    """Makes a collective call that must fail, with NULL for what this rank does not have: the
    others get the reason."""
    lib.rill_error_set(0, reason.encode())
    call(*arguments)
    lib.rill_error_set(0, None)


class Sharing:
    """``with sharing:`` around what a rank does by itself for a collective call, before it: if that
    fails, the rank makes the call with NULL, so that it fails on the other ranks too, with the text
    of this error."""

    def __init__(self, call: Any, handle: ctypes.c_void_p, *arguments: Any) -> None:
        self._call, self._handle, self._arguments = call, handle, arguments

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: Any, _trace: Any) -> None:
        # The interpreter's end is shared in another way (_exit.py), and nothing twice.
        if (
            error is None
            or not isinstance(error, Exception)
            or getattr(error, "_shared", False)
            or not self._handle
        ):
            return
        error._shared = True  # type: ignore[attr-defined]
        text = str(error) if isinstance(error, RillError) else f"{type(error).__name__}: {error}"
        refuse(text, self._call, self._handle, *self._arguments)


def version() -> str:
    """Version of the C library in use, such as "0.1.0"."""
    return str(lib.rill_version().decode())


def isa() -> str:
    """The instruction set that the kernels use: "scalar", "avx2" or "avx512"."""
    return str(lib.rill_isa().decode())


if version().rsplit(".", 1)[0] != VERSION:
    raise ImportError(f"librill.so has version {version()}; this package needs {VERSION}.x")


def _names(at: Any) -> list[str]:
    names: list[str] = []
    while True:
        name = at(len(names))
        if name is None:
            return names
        names.append(name.decode())


def algorithms(collective: str = "allreduce") -> list[str]:
    """Names of the algorithms of "allreduce", "reduce", ..., or of those that only a "reducer"
    has."""
    order = [*COLLECTIVES, "reducer"]
    if collective not in order:
        raise ValueError(f"collective {collective!r} is none of {', '.join(order)}")
    number = order.index(collective)
    return _names(lambda i: lib.rill_algorithm_at(number, i, None))


def codecs() -> list[str]:
    """Names of the codecs of indices."""
    return _names(lambda i: lib.rill_codec_at(i, None))


def selectors() -> list[str]:
    """Names of the ways to select entries."""
    return _names(lambda i: lib.rill_selector_at(i, None))
