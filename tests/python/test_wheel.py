"""The tables of both packages: pip install . and pip install ./python. tests/python/wheel has the
rest."""

import ast
import re

import pytest

pytestmark = pytest.mark.once


def tables(path):
    """A string or a list of strings in one line is the same in TOML and in Python."""
    found, table = {}, {}
    with open(path) as file:
        for line in file.read().splitlines():
            if match := re.fullmatch(r"\[(.+)\]", line):
                table = found.setdefault(match[1], {})
            elif match := re.fullmatch(r"([\w.-]+) = (.+)", line):
                table[match[1]] = ast.literal_eval(match[2])
    return found


@pytest.mark.parametrize("table", ["project", "project.optional-dependencies"])
def test_both_say_the_same(repository, table):
    whole = tables(f"{repository}/pyproject.toml")
    package = tables(f"{repository}/python/pyproject.toml")
    assert whole[table] and whole[table] == package[table]


def test_the_version_is_the_library_s(repository):
    import rill

    assert tables(f"{repository}/pyproject.toml")["project"]["version"] == rill.__version__
    assert rill.version() == rill.__version__
