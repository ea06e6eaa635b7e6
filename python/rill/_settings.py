"""The settings that the library knows: names of options are checked against its own table
(core/settings.h)."""

from __future__ import annotations

import ctypes
import difflib
from dataclasses import dataclass
from functools import lru_cache
from typing import Iterable, Optional

from ._library import lib

_STRUCTS = {1: "rill_config", 2: "rill_options", 4: "rill_reducer_options"}
_HERE = {"lambda": "sketch_lambda"}  # a word of Python's own
_ABSENT = {"warmup_stages"}  # a list knows its length


class CSetting(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("environment", ctypes.c_char_p),
        ("info", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("structs", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class Setting:
    """A setting of the library. ``environment`` is the variable that sets it, ``info`` its key in
    an MPI_Info, ``default`` a text, and ``structs`` names those of rill.h that have it."""

    name: str
    description: str
    default: str
    environment: Optional[str]
    info: Optional[str]
    structs: tuple[str, ...]


def settings() -> list[Setting]:
    """All settings of the library, as ``rill info --settings`` prints them."""
    found: list[Setting] = []
    c = CSetting(ctypes.sizeof(CSetting))
    while lib.rill_setting_at(len(found), ctypes.byref(c)) is not None:
        found.append(
            Setting(
                name=c.name.decode(),
                description=c.description.decode(),
                default=c.value.decode(),
                environment=c.environment.decode() if c.environment else None,
                info=c.info.decode() if c.info else None,
                structs=tuple(name for bit, name in _STRUCTS.items() if c.structs & bit),
            )
        )
    return found


@lru_cache(maxsize=None)
def option_names(struct: str) -> tuple[str, ...]:
    """The fields of a struct of options as keywords are called here."""
    return tuple(
        _HERE.get(s.name, s.name)
        for s in settings()
        if struct in s.structs and s.name not in _ABSENT
    )


def field_of(name: str) -> str:
    """The field of a struct that a keyword sets."""
    return next((field for field, here in _HERE.items() if here == name), name)


def unknown(what: str, name: str, known: Iterable[str], end: str = " is unknown") -> str:
    """The sentence about a name that does not exist, and those that do."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    hint = f", did you mean {close[0]!r}?" if close else "."
    return f"{what} {name!r}{end}{hint} Known: {', '.join(names)}"
