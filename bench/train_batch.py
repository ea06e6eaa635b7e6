"""The part "batch" of bench/train: what batches of sgd, and local steps, cost and reach.

Accuracy on a held-out fifth (a twentieth of the URL shape) after 4 epochs, with a C that is given:
a9a, news20-12gram and 300,000 rows of the URL shape. First on ranks of this machine: batches that
are named on 1 and 4 ranks, without averages and with eight and one of them an epoch. Then
--batch auto beside the batch of the default, on 4 emulated hosts of 1 Gbit/s and
100 Mbit/s (root): seconds of training, too. BATCH_SETS: names of sets.
"""
import math
import os

from train_runs import LAB, RILL, ROOT, Skip, generate, real, run, train

RANKS = 4
URL = 300000
# Rows to train on, batches by size, and what is said with them.
SETS = {
    "a9a": (26049, (26, 100, 1000, 4000), ["--valid", "20%", "--C", "3", "--scale", "none"]),
    "news20-12gram.train": (
        12797,
        (9, 100, 1000),
        ["--valid", "20%", "--C", "100", "--scale", "rows"],
    ),
    "url": (285000, (100, 600, 4000), ["--valid", "5%", "--C", "3", "--scale", "none"]),
}


def one(bench, file, options, **about):
    lines, said = train(bench, file, ["--solver", "sgd", "--epochs", "4", *options], **about)
    choice = [line for line in said.splitlines() if ", solver sgd" in line][0]
    return lines[-1], choice.split("solver sgd, ")[1], sum(line["seconds"] for line in lines)


def show(bench, name, words, last, seconds, took=""):
    bench.say(
        f"  {name:20} {words:44} {100 * last['valid_accuracy']:6.2f} % "
        f"{last['valid_loss']:8.4f} {seconds:7.2f} s {last['sent_bytes'] / 1e6:8.2f} MB {took}"
    )


def on_ranks(bench, name, file, rows, batches, options):
    last, took, seconds = one(bench, file, [*options, "--ranks", "1"], what="1 rank")
    show(bench, name, "1 rank", last, seconds, took)
    exact = last["valid_accuracy"]
    for batch in batches:
        last, took, seconds = one(
            bench, file, [*options, "--ranks", str(RANKS), "--batch", str(batch)], what="exact"
        )
        show(bench, name, f"{RANKS} ranks, batch {batch}", last, seconds)
    best = 0
    for averages in (8, 1):
        batch = max(1, batches[0] // 20)
        steps = math.ceil(rows / RANKS / batch / averages)
        words = ["--ranks", str(RANKS), "--batch", str(batch), "--local-steps", str(steps)]
        last, took, seconds = one(bench, file, [*options, *words], what=f"{averages} averages")
        show(bench, name, f"{RANKS} ranks, {averages} averages an epoch", last, seconds, took)
        best = max(best, last["valid_accuracy"])
    bench.goal(f"{name}: averages within half a point of one rank", best > exact - 0.005)


def on_hosts(bench, name, file, batches, options):
    for rate in ("1gbit", "100mbit"):
        lab = [f"{ROOT}/lab/cluster", "--hosts", str(RANKS), "--rate", rate, "--quiet", *LAB]
        took_by = []
        for words in (["--batch", str(batches[0])], ["--batch", "auto"]):
            last, took, seconds = one(
                bench, file, [*options, *words], command=[*lab, "--", RILL], network=rate
            )
            what = f"{RANKS} hosts, {rate}, batch {words[1]}"
            show(bench, name, what, last, seconds, took)
            took_by.append((seconds, last["valid_accuracy"]))
        gain = took_by[0][0] / took_by[1][0]
        bench.goal(f"auto is no slower: {gain:.2f}x", gain > 0.9)
        worse = took_by[0][1] - took_by[1][1]
        bench.goal(f"nor half a point behind: {100 * worse:+.2f} points", worse < 0.005)


def part_batch(bench):
    names = os.environ.get("BATCH_SETS", " ".join(SETS)).split()
    for name in names:
        rows, batches, options = SETS[name]
        file = generate(bench, "url", 20000 if bench.quick else URL) if name == "url" else None
        on_ranks(bench, name, file or real(bench, name), rows, batches, options)
    if os.geteuid():
        raise Skip("emulated hosts need root")
    run([f"{ROOT}/lab/cluster", "--help"])
    for name in names:
        rows, batches, options = SETS[name]
        file = generate(bench, "url", 20000 if bench.quick else URL) if name == "url" else None
        on_hosts(bench, name, file or real(bench, name), batches, options)
