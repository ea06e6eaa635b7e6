"""Everything that the binding says about rill.h, against the header itself as the compiler sees it.

test_layout.py compares offsets, sizes and defaults; here it is names, kinds and values. Every
struct, enum and function of the header is bound as it is declared, or is named below as one that
Python leaves out. What is added to one side only fails.
"""

import ctypes
import re
import shutil
import subprocess

import pytest

import rill
from rill import _buffers, _library, _plan, _settings, _rendezvous, _structs

pytestmark = pytest.mark.once
# What Python has no use for.
ENUMS_LEFT_OUT: set = set()
STRUCTS_LEFT_OUT = {"rill_tune_options", "rill_tune_report"}
FUNCTIONS_LEFT_OUT = {
    "rill_collective_name",
    "rill_comm_create",  # its arguments depend on the MPI: rill/_mpi.py
    "rill_comm_bcast_bytes",
    "rill_comm_dup",
    "rill_comm_forget",
    "rill_comm_gather_bytes",
    "rill_reducer_type",
    "rill_tune",
    "rill_type_size",
    "rill_values_bound",
    "rill_values_decode",
    "rill_values_encode",
}
KINDS = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


def declarations(repository):
    """The text that rill.h itself adds to a program without MPI, in one line."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler")
    text = subprocess.run(
        [compiler, "-E", "-DRILL_NO_MPI", f"-I{repository}/include", "-x", "c", "-"],
        input="#include <rill/rill.h>\n", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines, ours = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = marker[1].endswith("rill/rill.h")
        elif ours:
            lines.append(line)
    joined = " ".join(lines).replace('__attribute__((visibility("default")))', "")
    return re.sub(r"\s+", " ", joined)


def split(text):
    """The parts between commas, but not between those in parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def kind_of(declaration, enums):
    """The ctypes kind of "const char *name", "uint64_t dim", "rill_type"; "pointer" for
    pointers."""
    if "*" in declaration or "(" in declaration:
        if declaration.startswith("const char *") and declaration.count("*") == 1:
            return ctypes.c_char_p
        return "pointer"
    words = [word for word in declaration.split() if word != "const"]
    if words == ["void"]:
        return None
    if words[0] in enums:
        return ctypes.c_int
    return KINDS[words[0]]


def same(bound, wanted):
    """Whether a ctypes kind stands for it. Text that may be written, or NULL, is bound as a
    pointer."""
    if wanted == "pointer":
        function = isinstance(bound, type) and issubclass(bound, ctypes._CFuncPtr)
        return bound is ctypes.c_void_p or hasattr(bound, "contents") or function
    if wanted is ctypes.c_char_p:
        return bound in (ctypes.c_char_p, ctypes.c_void_p)
    return bound is wanted


@pytest.fixture
def header(repository):
    text = declarations(repository)
    enums = {
        name: {key: int(value) for key, value in re.findall(r"(\w+) = (-?\d+)", body)}
        for body, name in re.findall(r"typedef enum \w+ \{([^}]*)\} (\w+);", text)
    }
    structs = {}
    for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);", text):
        fields = structs[name] = {}
        for declaration in body.split(";"):
            parts = split(declaration)
            for part in parts:  # "int ranks, hosts" and "const char *a, *b" share the first word
                first = part is parts[0]
                full = part if first else re.match(r"(?:const )?\w+ ", parts[0])[0] + part
                called = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\d+\])?$", full)
                fields[called[1] or called[2]] = full
    functions = {}
    flat = re.sub(r"typedef (?:struct|enum) \w+ \{[^}]*\} \w+;", "", text)
    for statement in flat.split(";"):
        made = re.match(r"((?:const )?\w+ \*?)\s*(rill_\w+)\((.*)\)$", statement.strip())
        if made and not statement.strip().startswith("typedef"):
            arguments = [] if made[3] == "void" else split(made[3])
            functions[made[2]] = (made[1].strip(), arguments)
    assert len(functions) > 60 and len(structs) > 8
    return {"enums": enums, "structs": structs, "functions": functions}


def test_structs_have_the_fields_of_the_header(header):
    bound = {
        "rill_stats": _structs.CStats,
        "rill_options": _structs.COptions,
        "rill_reducer_options": _structs.CReducerOptions,
        "rill_select_options": _structs.CSelectOptions,
        "rill_tensor": _structs.CTensor,
        "rill_bootstrap": _rendezvous.CBootstrap,
        "rill_config": _structs.CConfig,
        "rill_setting": _settings.CSetting,
        "rill_plan_query": _plan.CPlanQuery,
        "rill_plan_row": _plan.CPlanRow,
    }
    assert set(header["structs"]) == set(bound) | STRUCTS_LEFT_OUT
    for name, struct in bound.items():
        fields = header["structs"][name]
        assert [field for field, *_ in struct._fields_] == list(fields), name
        for field, kind, *_ in struct._fields_:
            assert same(kind, kind_of(fields[field], header["enums"])), (name, fields[field], kind)


def test_functions_take_and_return_what_the_header_says(header):
    names = {name for results in _library._BY_RESULT.values() for name in results}
    for name in _library.COLLECTIVES:
        names |= {f"rill_{name}", f"rill_i{name}", f"rill_{name}_init"}
    assert names | FUNCTIONS_LEFT_OUT - {"rill_comm_create"} == set(header["functions"])
    assert not names & FUNCTIONS_LEFT_OUT
    for name in sorted(names):
        result, arguments = header["functions"][name]
        function = getattr(_library.lib, name)
        said = f"{result} {name}({', '.join(arguments)})"
        assert same(function.restype, kind_of(result, header["enums"])), said
        assert len(function.argtypes) == len(arguments), said
        for bound, declared in zip(function.argtypes, arguments):
            assert same(bound, kind_of(declared, header["enums"])), (said, declared, bound)


def test_enums_have_the_values_of_the_header(header):
    bound = {"rill_status", "rill_type", "rill_collective", "rill_memory"}
    assert set(header["enums"]) == bound | ENUMS_LEFT_OUT
    status = header["enums"]["rill_status"]
    failures = {value: name[len("RILL_ERR_") :] for name, value in status.items() if value < 0}
    assert _library.STATUS_NAMES == failures
    memories = {f"RILL_{name.upper()}": value for name, value in _buffers.MEMORIES.items()}
    assert memories == header["enums"]["rill_memory"]
    assert {f"RILL_{t.name}": t.value for t in rill.Type} == header["enums"]["rill_type"]
    order = {f"RILL_{name.upper()}": i for i, name in enumerate(_library.COLLECTIVES)}
    assert order == header["enums"]["rill_collective"]
