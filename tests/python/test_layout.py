"""The structs of the binding against the header."""

import ctypes
import runpy
import shutil
import subprocess

import pytest

import rill
from rill import _plan, _settings, _structs

STRUCTS = {
    "rill_stats": _structs.CStats,
    "rill_options": _structs.COptions,
    "rill_reducer_options": _structs.CReducerOptions,
    "rill_select_options": _structs.CSelectOptions,
    "rill_tensor": _structs.CTensor,
    "rill_config": _structs.CConfig,
    "rill_setting": _settings.CSetting,
    "rill_plan_query": _plan.CPlanQuery,
    "rill_plan_row": _plan.CPlanRow,
}
DEFAULTS = {
    "rill_options": ("RILL_OPTIONS_INIT", lambda: _structs.call_options({})),
    "rill_reducer_options": ("RILL_REDUCER_OPTIONS_INIT", lambda: _structs.reducer_options({})),
    "rill_select_options": ("RILL_SELECT_OPTIONS_INIT", lambda: _structs.select_options({})),
}


def program():
    lines = ["#include <rill/rill.h>", "#include <stdio.h>", "int main(void) {"]
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} size %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            size = f"sizeof((({name} *)0)->{field})"
            lines.append(f'printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), {size});')
    for name, (macro, _) in DEFAULTS.items():
        lines.append(f"{{ {name} o = {macro}; const unsigned char *b = (const void *)&o;")
        lines.append(
            f'printf("{name} bytes "); for (size_t i = 0; i < sizeof o; i++) '
            'printf("%02x", b[i]); puts(""); }'
        )
    return "\n".join([*lines, "return 0; }"])


def described():
    for name, struct in STRUCTS.items():
        yield f"{name} size {ctypes.sizeof(struct)}"
        for field, kind, *_ in struct._fields_:
            yield f"{name} {field} {getattr(struct, field).offset} {ctypes.sizeof(kind)}"


@pytest.mark.once
def test_structs_and_defaults_are_those_of_the_header(repository, tmp_path):
    import mpi4py

    compiler = mpi4py.get_config().get("mpicc") or ""
    compiler = compiler if shutil.which(compiler) else shutil.which("mpicc")
    if not compiler:
        pytest.skip("no mpicc")
    source, binary = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(program())
    # Zeroed padding: defaults are compared as bytes.
    subprocess.run(
        [
            compiler,
            "-ftrivial-auto-var-init=zero",
            f"-I{repository}/include",
            str(source),
            "-o",
            str(binary),
        ],
        check=True,
    )
    printed = subprocess.run(
        [str(binary)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    bytes_lines = [line for line in printed if " bytes " in line]
    assert [line for line in printed if " bytes " not in line] == list(described())
    assert bytes_lines == [
        f"{name} bytes {bytes(make()).hex()}" for name, (_, make) in DEFAULTS.items()
    ]


@pytest.mark.once
def test_options_are_those_of_the_library():
    """Keywords, and the types that editors know them by, against the library's own table of
    settings."""
    for struct, fields, keywords in (
        ("rill_options", _structs.COptions, _structs.Options),
        ("rill_reducer_options", _structs.CReducerOptions, _structs.ReducerOptions),
    ):
        names = {*_settings.option_names(struct)}
        if struct == "rill_reducer_options":
            names |= {"memory", "device"}  # which no setting of the environment gives
        assert sorted(names) == sorted(keywords.__annotations__)
        have = {name for name, *_ in fields._fields_}
        assert {_settings.field_of(name) for name in names} | {"size", "warmup_stages"} == {
            *have,
            "warmup_stages",
        }
    algorithm = rill.settings()[0]
    assert (algorithm.name, algorithm.environment, algorithm.info) == (
        "algorithm",
        "RILL_ALGORITHM",
        "rill_algorithm",
    )
    assert (
        algorithm.structs == ("rill_options", "rill_reducer_options")
        and algorithm.default == "auto"
    )


def test_an_unknown_option(comm):
    for call in (
        lambda **o: comm.allreduce(rill.Stream(10), **o),
        lambda **o: rill.Reducer(comm, 10, **o),
    ):
        with pytest.raises(TypeError, match="did you mean 'value_bits'.*algorithm, "):
            call(value_bit=8)


@pytest.mark.once
def test_the_reference_is_up_to_date(repository):
    made = runpy.run_path(f"{repository}/python/tools/apidoc")["page"]()
    with open(f"{repository}/docs/reference/python.md") as file:
        assert file.read() == made, "run python/tools/apidoc"
