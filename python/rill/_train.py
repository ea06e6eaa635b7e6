"""librill_train: what rill.sklearn needs of it. tests/python/test_sklearn.py compares the structs
with the header."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ._library import check, lib

c_int, c_double, c_size, text = ctypes.c_int, ctypes.c_double, ctypes.c_size_t, ctypes.c_char_p
u64, pointer = ctypes.c_uint64, ctypes.c_void_p


class CDataView(ctypes.Structure):
    _fields_ = [
        ("size", c_size), ("dim", u64), ("rows", u64), ("entries", u64), ("first_row", u64),
        ("total_rows", u64), ("row", pointer), ("index32", pointer), ("index64", pointer),
        ("value", pointer), ("label", pointer), ("qid", pointer), ("weight", pointer),
    ]  # fmt: skip


class CTrainOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size), ("loss", text), ("solver", text), ("task", text), ("C", c_double),
        ("l2", c_double), ("l1", c_double), ("bias", c_double), ("class_weights", text),
        ("valid_fraction", c_double), ("seed", u64), ("optimizer", text), ("schedule", text),
        ("lr", c_double), ("decay", c_double), ("step_factor", c_double), ("step_epochs", u64),
        ("momentum", c_double), ("batch", u64), ("local_steps", u64), ("staleness", c_int),
        ("algorithm", text), ("codec", text), ("reducer", text), ("density", c_double),
        ("value_bits", c_int), ("coordinates", u64), ("tolerance", c_double), ("threads", c_int),
        ("profile", c_int), ("intercept", c_int), ("scale", text), ("multiclass", text),
        ("huber_delta", c_double), ("window", u64), ("folds", c_int), ("fold", c_int),
        ("progress", pointer), ("context", pointer), ("steps", u64),
    ]  # fmt: skip


class CTrainReport(ctypes.Structure):
    _fields_ = [
        ("size", c_size), ("epoch", u64), ("samples", u64), ("steps", u64), ("loss", c_double),
        ("objective", c_double), ("seconds", c_double), ("comm_seconds", c_double),
        ("eval_seconds", c_double), ("sent_bytes", u64), ("memory_bytes", u64), ("lr", c_double),
        ("valid_loss", c_double), ("valid_accuracy", c_double), ("valid_auc", c_double),
        ("algorithm", text), ("converged", c_int), ("wait_seconds", c_double),
        ("stopped", c_int),
    ]  # fmt: skip


class CModelView(ctypes.Structure):
    _fields_ = [
        ("size", c_size), ("solver_type", text), ("regression", c_int), ("probability", c_int),
        ("features", u64), ("columns", c_int), ("labels", c_int), ("label", pointer),
        ("bias", c_double), ("weight", pointer),
    ]  # fmt: skip


def _load() -> ctypes.CDLL:
    here = Path(str(lib._name))
    beside = here.with_name(here.name.replace("librill", "librill_train"))
    try:
        train = ctypes.CDLL(str(beside))
    except OSError as error:
        raise ImportError(
            f"librill_train.so, the library of training, is needed beside {lib._name}: {error}"
        ) from None
    for name, arguments in {
        "rill_dataset_create_on": (pointer, pointer, pointer),
        "rill_dataset_free": (pointer,),
        "rill_trainer_create_on": (pointer, pointer, pointer, pointer, pointer),
        "rill_trainer_free": (pointer,),
        "rill_trainer_epoch": (pointer, pointer),
        "rill_trainer_model": (pointer, pointer),
        "rill_model_free": (pointer,),
        "rill_model_look": (pointer, pointer),
    }.items():
        function = getattr(train, name)
        function.restype = c_int
        function.argtypes = list(arguments)
    return train


train = _load()
lib.rill_comm_gather_bytes.restype = c_int
lib.rill_comm_gather_bytes.argtypes = [pointer, pointer, c_size, pointer]


def options(**given: Any) -> CTrainOptions:
    """RILL_TRAIN_OPTIONS_INIT with what is given."""
    made = CTrainOptions(
        size=ctypes.sizeof(CTrainOptions), C=1, l2=1, bias=-1, seed=1, decay=0.25, step_factor=0.5,
        step_epochs=5, momentum=0.9, density=0.01, coordinates=100, threads=1,
    )  # fmt: skip
    for name, value in given.items():
        setattr(made, name, value.encode() if isinstance(value, str) else value)
    return made


class Ranks:
    """The ranks that train together: a communicator of rill, or this process alone."""

    def __init__(self, comm: Optional[Any]) -> None:
        self._own = pointer()
        if comm is None:
            check(lib.rill_comm_create_local(1, None, ctypes.byref(self._own)))
        self.handle = self._own if comm is None else comm._handle
        self.size: int = lib.rill_comm_size(self.handle)

    def close(self) -> None:
        if self._own:
            check(lib.rill_comm_free(ctypes.byref(self._own)))

    def gather(self, mine: np.ndarray) -> np.ndarray:
        """Arrays of the same shape, of all ranks."""
        mine = np.ascontiguousarray(mine)
        if self.size == 1:
            return mine[None]
        every = np.empty((self.size, *mine.shape), mine.dtype)
        data, into = mine.ctypes.data, every.ctypes.data
        check(lib.rill_comm_gather_bytes(self.handle, data, mine.nbytes, into))
        return every

    def sum(self, mine: np.ndarray) -> np.ndarray:
        return np.asarray(self.gather(np.asarray(mine, dtype=np.float64)).sum(axis=0))

    def join(self, mine: bytes) -> list[bytes]:
        """Bytes of any length, of all ranks."""
        lengths = self.gather(np.array([len(mine)], np.int64))[:, 0]
        padded = np.zeros(max(int(lengths.max()), 1), np.uint8)
        padded[: len(mine)] = np.frombuffer(mine, np.uint8)
        return [bytes(one[:n]) for one, n in zip(self.gather(padded), lengths)]


def fit(
    ranks: Ranks, X: Any, label: np.ndarray, weight: Optional[np.ndarray], epochs: int, dim: int,
    **given: Any,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Weights, of shape (features and the intercept, columns), and epochs done. X is CSR."""
    row = np.ascontiguousarray(X.indptr, np.uint64)
    index = np.ascontiguousarray(X.indices, np.uint32)
    value = np.ascontiguousarray(X.data, np.float32)
    label = np.ascontiguousarray(label, np.float64)
    counts = None if weight is None else np.ascontiguousarray(weight, np.float32)
    view = CDataView(
        size=ctypes.sizeof(CDataView), dim=dim, rows=X.shape[0], row=row.ctypes.data,
        index32=index.ctypes.data, value=value.ctypes.data, label=label.ctypes.data,
        weight=None if counts is None else counts.ctypes.data,
    )  # fmt: skip
    data, trainer, model = pointer(), pointer(), pointer()
    report = CTrainReport(size=ctypes.sizeof(CTrainReport))
    look = CModelView(size=ctypes.sizeof(CModelView))
    settings = options(**given)
    try:
        made = ctypes.byref(data)
        check(train.rill_dataset_create_on(ranks.handle, ctypes.byref(view), made))
        at = ctypes.byref(settings), ctypes.byref(trainer)
        check(train.rill_trainer_create_on(ranks.handle, data, None, *at))
        while report.epoch < epochs and not report.converged:
            check(train.rill_trainer_epoch(trainer, ctypes.byref(report)))
        check(train.rill_trainer_model(trainer, ctypes.byref(model)))
        check(train.rill_model_look(model, ctypes.byref(look)))
        shape = (int(look.features) + (look.bias >= 0), int(look.columns))
        found = ctypes.cast(look.weight, ctypes.POINTER(c_double))
        weights = np.ctypeslib.as_array(found, shape).copy()
    finally:
        train.rill_model_free(ctypes.byref(model))
        train.rill_trainer_free(ctypes.byref(trainer))
        train.rill_dataset_free(ctypes.byref(data))
    return weights, int(report.epoch)
