"""What the parts of bench/train share: a run of rill train and its log, data, goals."""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RILL = os.path.abspath(os.environ.get("RILL", f"{ROOT}/build/bin/rill"))
RESULTS = os.environ.get("RESULTS", f"{ROOT}/bench/results/train")
DATA = os.environ.get("RILL_DATA", os.path.join(ROOT, "..", "shared", "data"))
LAB = os.environ.get("RILL_LAB", "").split()
SMPI = os.environ.get("RILL_SMPI_BUILD", f"{ROOT}/build-smpi")


class Skip(Exception):
    """Something that a part needs is not here."""


class Bench:
    """Records, lines of the table and goals of one part."""

    def __init__(self, part, quick, scratch):
        self.part, self.quick, self.scratch = part, quick, scratch
        self.lines, self.missed = [], 0
        os.makedirs(RESULTS, exist_ok=True)
        self.out = open(f"{RESULTS}/{part}.jsonl", "w")

    def record(self, **fields):
        self.out.write(json.dumps({"part": self.part, **fields}) + "\n")
        self.out.flush()

    def say(self, text):
        self.lines.append(text)

    def goal(self, text, met):
        if self.quick:
            return self.say(f"    {text}")
        self.missed += not met
        self.say(f"    {text}: {'met' if met else 'MISSED'}")


def run(command, **more):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )
    if done.returncode == 77:
        raise Skip((done.stderr.strip().splitlines() or ["not possible here"])[-1])
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def have(program):
    return any(os.access(os.path.join(p, program), os.X_OK) for p in os.environ["PATH"].split(":"))


def generate(bench, shape, rows, form="binary"):
    path = f"{bench.scratch}/{shape}-{rows}.{form}"
    if not os.path.exists(path):
        print(f"{bench.part}: {rows} rows of {shape} shape ({form})", file=sys.stderr)
        run([RILL, "gen", shape, "--samples", str(rows), "--format", form, "-o", path, "--quiet"])
    return path


def simulator(ranks, platform="1gbe", poll="5e-6"):
    """rill on so many simulated hosts; built for SimGrid first. Exchanges take milliseconds on
    Ethernet: a poll every 5 us is fine enough, and five times as fast."""
    simulate = [f"{ROOT}/lab/simulate", "--platform", platform, "--poll", poll]
    # Asked for its own program, lab/simulate builds the tool.
    tiny = ["--dim", "64", "--reps", "1", "--quiet"]
    run([*simulate, "--build", SMPI, "--ranks", "2", "--", *tiny])
    return [*simulate, "--ranks", str(ranks), "--program", f"{SMPI}/bin/rill", "--"]


def train(bench, file, options, command=None, **about):
    """Runs rill train, by that command or on this machine, and returns the lines of its log."""
    log = f"{bench.scratch}/log.jsonl"
    if os.path.exists(log):
        os.remove(log)
    words = [*(command or [RILL]), "train", file, "--log", log, *options]
    print(f"{bench.part}: rill train {os.path.basename(file)} {' '.join(options)}", file=sys.stderr)
    done = run(words)
    lines = [json.loads(line) for line in open(log)]
    for line in lines:
        line["file"] = os.path.basename(line["file"])
        # Files by their names: where they lie is this machine's affair.
        bench.record(
            options=" ".join(os.path.basename(o) if os.path.isabs(o) else o for o in options),
            **about,
            **line,
        )
    return lines, done.stdout


def real(bench, name):
    path = f"{DATA}/{name}.svm.xz"
    if not os.path.exists(path):
        raise Skip(f"there is no {name}.svm.xz in the data folder: set RILL_DATA")
    plain = f"{bench.scratch}/{name}.svm"
    if not os.path.exists(plain):
        with open(plain, "wb") as out:
            subprocess.run(["xz", "-dc", path], stdout=out, check=True)
    return plain


def accuracy(file, model, *options):
    said = run([RILL, "predict", file, "--model", model, *options]).stdout
    return float(re.search(r"accuracy ([0-9.]+)", said)[1])


def last_number(text, word):
    return float(re.findall(word + r" ([-0-9.e+]+)", text)[-1])
