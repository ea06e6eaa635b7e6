"""The part "times" of bench/train: seconds by the clock on one core of an idle machine, on the
first split of each set of the part "defaults": rill train with no flag but the file, and each peer.

All read the same text file. "seconds": start (of rill and LIBLINEAR), reading, the search for C and
training. Of scikit-learn and Vowpal Wabbit, which run within Python, its start is not in it.
"in_memory": without reading, too, of scikit-learn and of rill, by its log. A peer is as good if
its loss in defaults.jsonl, of the same peers on all splits, is at most 3 % above rill's.

Environment: SETS, PEERS; REPS (5); KEEP (a folder that splits are left in, for a later run);
RESULTS, where defaults.jsonl is. A peer that took more than LONG (20) seconds is not repeated.
"""
import json
import os
import statistics
import time

from records import load
from train_defaults import COMMIT, LARGE, PEERS, SMALL, by_vw, load_set, sklearn_model, splits
from train_defaults import liblinear_train
from train_runs import RESULTS, RILL, Skip, have, run

REPS = int(os.environ.get("REPS", "5"))
LONG = float(os.environ.get("LONG", "20"))


def prepared(bench, name):
    """The files of the first split; "" where the set cannot be had."""
    from sklearn.datasets import dump_svmlight_file

    folder = os.environ.get("KEEP", bench.scratch)
    files = (f"{folder}/{name}.fold.train", f"{folder}/{name}.fold.test", bench.scratch)
    if not all(map(os.path.exists, files)):
        X, y, test = load_set(bench, name)
        for path, rows in zip(files, splits(name, y, test, 1)[0]):
            dump_svmlight_file(X[rows], y[rows], path, zero_based=False)
    return files


def clocked(work):
    began = time.perf_counter()
    made = work()
    return time.perf_counter() - began, made


def repeated(work):
    """Seconds of each repetition; work may return more of them."""
    work_s, more = [], []
    while len(work_s) < REPS and not (work_s and work_s[-1] > LONG):
        seconds, also = clocked(work)
        work_s.append(seconds)
        more.append(also)
    return work_s, more


def sklearn_once(file, regression, sparse, large):
    """Reads, and fits; returns the seconds of the latter."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(file)
    X = X if sparse else X.toarray()
    return clocked(lambda: sklearn_model(X, regression, large).fit(X, y))[0]


def rill_once(bench, file, model):
    """Trains, and returns the seconds of the search for C and of training."""
    log = f"{bench.scratch}/times.jsonl"
    if os.path.exists(log):
        os.remove(log)
    run([RILL, "train", file, "--model", model, "--log", log])
    last = json.loads(open(log).readlines()[-1])
    return last["elapsed_seconds"] - last["load_seconds"]


def time_set(bench, name):
    regression = name.startswith("diabetes")
    sparse = name in LARGE or name == "rcv1-small"
    files = prepared(bench, name)
    model = f"{bench.scratch}/model"
    with open(files[0]) as rows:
        labels = [] if regression else sorted({float(row.split(None, 1)[0]) for row in rows})
    ways = {
        "rill": lambda: rill_once(bench, files[0], model),
        "liblinear": lambda: liblinear_train(files[0], model, regression),
        "sklearn": lambda: sklearn_once(files[0], regression, sparse, name in LARGE),
        "vw": lambda: by_vw(files, labels)[2],
    }
    found, in_memory = {}, []
    for who in ("rill", *PEERS):
        if who == "liblinear" and not have("liblinear-train"):
            continue
        times, more = repeated(ways[who])
        if who == "vw":  # without what the script itself does to its files
            times = more
        found[who] = statistics.median(times)
        about = {"in_memory_s": statistics.median(more)} if who in ("rill", "sklearn") else {}
        bench.record(set=name, who=who, times_s=times, **about, commit=COMMIT)
        text = f"  {name:18} {who:10} {found[who]:9.4f} s ({min(times):.4f} to {max(times):.4f})"
        if about:
            text += f"; in memory {about['in_memory_s']:.4f} s"
        bench.say(text)
        if about:
            in_memory.append(about["in_memory_s"])
    if len(in_memory) == 2:
        found["in_memory"] = in_memory
    return found


def compare(bench, name, found, losses):
    if (name, "rill") not in losses:
        return bench.say(f"    {name}: defaults.jsonl has no losses")
    most = 1.03 * losses[name, "rill"]
    peers = [who for who in found if who not in ("rill", "in_memory")]
    good = [who for who in peers if losses.get((name, who), most + 1) <= most]
    if not good:
        return bench.say(f"    {name}: no peer's loss is within 3 % of rill's")
    fastest = min(good, key=found.get)
    ratio, limit = found["rill"] / found[fastest], 0.7 if name in LARGE else 1.2
    if "in_memory" in found and fastest == "sklearn":
        ours, theirs = found["in_memory"]
        bench.say(f"    {name}: in memory {ours / theirs:.2f} of the time of {fastest}")
    bench.goal(f"{name}: {ratio:.2f} of the time of {fastest}, at most {limit}", ratio <= limit)


def part_times(bench):
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise Skip("no scikit-learn (pip install scikit-learn)") from error
    losses = {(r["set"], r["who"]): r["loss"] for r in load(f"{RESULTS}/defaults.jsonl")
              if "loss" in r}
    bench.say("rill train FILE, nothing else, on one core; seconds by the clock")
    for name in os.environ.get("SETS", " ".join(SMALL if bench.quick else SMALL + LARGE)).split():
        try:
            compare(bench, name, time_set(bench, name), losses)
        except Skip as why:
            bench.say(f"  {name}: skipped: {why}")
