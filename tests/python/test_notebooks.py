"""The notebooks run on one process, without MPI: in a kernel where nbclient is installed, else
their cells one after the other."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.once
KERNEL = """
import sys, nbformat, nbclient
nbclient.NotebookClient(nbformat.read(sys.argv[1], 4), timeout=100).execute()
"""
CELLS = """
import json, sys
scope = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
assert "mpi4py" not in sys.modules
"""


def installed(*names):
    return all(find_spec(name) is not None for name in names)


@pytest.mark.parametrize("name", ["sums", "training"])
def test_notebook(repository, name):
    path = os.path.join(repository, "examples", "notebooks", f"{name}.ipynb")
    with open(path) as file:
        cells = json.load(file)["cells"]
    assert not any(cell.get("outputs") for cell in cells), "it is kept without outputs"
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OMPI_", "PMIX_", "PMI_"))
    }
    program = KERNEL if installed("nbclient", "nbformat", "ipykernel") else CELLS
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True, text=True, env=environment, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_pages_name_the_notebooks(repository):
    with open(os.path.join(repository, "examples", "README.md")) as file:
        text = file.read()
    folder = os.path.join(repository, "examples", "notebooks")
    assert all(f"notebooks/{name}" in text for name in os.listdir(folder) if name[0] != ".")
