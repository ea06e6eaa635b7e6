"""What the scripts of bench share: where things are, how rill bench is run, and its records."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
RILL = os.environ.get("RILL", os.path.join(BUILD, "bin", "rill"))
RESULTS = os.environ.get("RESULTS", os.path.join(HERE, "results"))
LAB = os.path.join(ROOT, "lab")


def script():
    """The name of the script that runs, from the root: bench/network."""
    return os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)


def say(text):
    """Beside the tables, on stderr."""
    print(text, file=sys.stderr, flush=True)


def options(text, *known):
    """The options that were given, all of which are flags: --help prints the text."""
    given = sys.argv[1:]
    if any(word in ("-h", "--help") for word in given):
        print(text.strip())
        sys.exit(0)
    for word in given:
        if word not in known:
            say(f"{script()}: unknown '{word}' ({', '.join((*known, '--help'))})")
            sys.exit(2)
    return set(given)


def need(path):
    if not os.access(path, os.X_OK):
        sys.exit(f"{script()}: there is no {path}: run make first, or set RILL")


def words(name, default):
    """A variable of the environment that is a list, or the default."""
    return os.environ.get(name, default).split()


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def recorded(command, quiet=False, environment=None):
    """Runs the command with --json: its records, and its status."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        status = subprocess.run(
            [*command, "--json", path],
            stdout=subprocess.DEVNULL if quiet else None,
            env={**os.environ, **(environment or {})},
        ).returncode
        return (read_lines(path) if os.path.exists(path) else []), status


def cluster(lab_options, *bench):
    """lab/cluster that runs rill bench."""
    return [os.path.join(LAB, "cluster"), *lab_options, "--", RILL, "bench", *bench]


def wrong(records):
    """How many results were not what they should be."""
    return sum(not r.get("correct", True) for r in records)
