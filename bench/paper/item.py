"""What the items of bench/paper share: options, the three ways to run, and where records go."""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import runs  # noqa: E402
from records import save  # noqa: E402

SMPI_BUILD = os.environ.get("SMPI_BUILD", os.path.join(runs.ROOT, "build-smpi"))
SIMULATE = os.path.join(runs.LAB, "simulate")
FAST = ["--no-compute", "--poll", "1e-5"]  # of lab/simulate: the network's share


def power(text):
    """A number, or a power such as 2^20."""
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent or 1)


class Item:
    """A figure or a table of a paper: its records, and whether all went well."""

    def __init__(self, text):
        self.name = os.path.basename(sys.argv[0])
        self.quick = "--quick" in runs.options(text, "--quick")
        here = os.path.join(runs.BUILD, "paper")
        results = here if self.quick else os.path.join(runs.HERE, "results", "paper")
        images = here if self.quick else os.path.join(runs.ROOT, "docs", "img")
        self.results = os.environ.get("RESULTS", results)
        self.images = os.environ.get("IMAGES", images)
        os.makedirs(self.results, exist_ok=True)
        os.makedirs(self.images, exist_ok=True)
        self.path = os.path.join(self.results, f"{self.name}.jsonl")
        self.records, self.failed, self.began = [], False, time.monotonic()

    def pick(self, normal, quick):
        """One of two settings."""
        return quick if self.quick else normal

    def words(self, name, normal, quick):
        """A list: of the environment, or one of two settings."""
        return runs.words(name, self.pick(normal, quick))

    def word(self, name, normal, quick):
        return os.environ.get(name, self.pick(normal, quick))

    def keep(self, case, records):
        """Adds records, marked with what they are about."""
        for r in records:
            r.pop("times_s", None)
        self.add([{"case": case, **r} for r in records])
        runs.say(f"{self.name}: {case} ({time.monotonic() - self.began:.0f} s)")

    def add(self, records):
        self.records += records
        if self.records:
            save(self.path, self.records, f"bench/paper/{self.name}")

    def simulated(self, case, ranks, platform, options, *bench):
        """rill bench under lab/simulate."""
        command = [SIMULATE, "--build", SMPI_BUILD, "--ranks", str(ranks), "--platform", platform]
        records, status = runs.recorded([*command, *options, "--", *bench, "--quiet"])
        self.failed |= status != 0
        self.keep(case, records)

    def dense(self, case, ranks, platform, size):
        """MPI_Allreduce of dense floats, simulated, buffers shared by all ranks."""
        program = os.path.join(runs.HERE, "paper", "dense_allreduce.c")
        command = [SIMULATE, "--build", SMPI_BUILD, "--ranks", str(ranks), "--platform", platform]
        command += ["--no-compute", "--program", program, "--", str(size)]
        with tempfile.NamedTemporaryFile(mode="r") as file, open(file.name, "w") as out:
            self.failed |= subprocess.run(command, stdout=out).returncode != 0
            self.keep(case, runs.read_lines(file.name))

    def end(self):
        """Table and plot of the records; the exit status."""
        runs.say(f"{self.name}: {time.monotonic() - self.began:.0f} s")
        plot = os.path.join(runs.HERE, "paper", "plot")
        self.failed |= subprocess.run([plot, self.name, self.path, self.images]).returncode != 0
        return 1 if self.failed else 0
