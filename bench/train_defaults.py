"""The part "defaults" of bench/train: rill train with no flag but the file, beside LIBLINEAR,
scikit-learn and Vowpal Wabbit, each with what its users would do for quality.

LIBLINEAR: -s 0 -B 1 (regression: -s 11), C by its own -C. scikit-learn: logistic regression or
ridge, C by cross-validation and the log loss, columns by StandardScaler, sparse ones by
MaxAbsScaler or not at all, whichever its cross-validation likes. Vowpal Wabbit: 20 passes. Means
over folds; one split where a set is large. Times are processor seconds of training with the
search for C: of rill and LIBLINEAR with the start of the program and the reading of the text, of
Vowpal Wabbit with the reading, of scikit-learn without either. A time is compared with those of the
peers whose loss is as good, or within 3 %.

Environment: SETS, FOLDS (repetitions of five folds), PEERS (some of: liblinear sklearn vw), KEEP (a
folder: what peers reached on a split is kept there, and not asked again in a later run).
"""
import hashlib
import json
import math
import os
import resource
import statistics
import subprocess
import time
import warnings

from train_runs import RILL, ROOT, Skip, have, real, run

SMALL = ("breast-cancer", "wine", "digits", "diabetes", "diabetes-units", "units", "rare",
         "rcv1-small")
LARGE = ("farm-ads", "a9a", "news20-12gram", "imdb-123gram.14k")
MILLIONS = LARGE[2:]  # of entries: there rill has to be faster than its peers
PEERS = os.environ.get("PEERS", "liblinear sklearn vw").split()
KEEP = os.environ.get("KEEP")
COMMIT = subprocess.run(
    ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True
).stdout.strip()


def generated(name):
    """units: columns of very different units and offsets. rare: a hundredth of positives."""
    import numpy

    draw = numpy.random.default_rng(7)
    rows, columns = (800, 20) if name == "units" else (6000, 30)
    X = draw.normal(size=(rows, columns))
    weight = draw.normal(size=columns)
    score = X @ weight + draw.normal(size=rows) * (2 if name == "units" else 1.5)
    y = numpy.where(score > numpy.quantile(score, 0.6 if name == "units" else 0.99), 1, -1)
    if name == "units":
        X = X * 10.0 ** draw.integers(-6, 5, size=columns) + draw.choice([0, 1, 1000], columns)
    return X, y


def load_set(bench, name):
    """(X, y, test rows or None)"""
    import numpy
    from scipy.sparse import vstack
    from sklearn import datasets

    if name in ("units", "rare"):
        return (*generated(name), None)
    if name.startswith("diabetes"):
        X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
        return (X * 10.0 ** (numpy.arange(10) - 4) if name.endswith("units") else X), y, None
    if name in ("breast-cancer", "wine", "digits"):
        loaders = {
            "breast-cancer": datasets.load_breast_cancer,
            "wine": datasets.load_wine,
            "digits": datasets.load_digits,
        }
        return (*loaders[name](return_X_y=True), None)
    parted = name in ("rcv1-small", "news20-12gram")
    train = real(bench, name + ".train" if parted else name)
    X, y = datasets.load_svmlight_file(train)
    if not parted:
        return X, y, None
    T, z = datasets.load_svmlight_file(real(bench, name + ".test"), n_features=None)
    width = max(X.shape[1], T.shape[1])
    X.resize(X.shape[0], width)
    T.resize(T.shape[0], width)
    return vstack([X, T]).tocsr(), numpy.concatenate([y, z]), len(z)


def splits(name, y, test, folds):
    import numpy
    from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold

    if test and name in LARGE:
        return [(numpy.arange(len(y) - test), numpy.arange(len(y) - test, len(y)))]
    if name in LARGE:
        return list(ShuffleSplit(1, test_size=0.2, random_state=1).split(y))
    kind = KFold if name.startswith("diabetes") else StratifiedKFold
    made = []
    for repeat in range(folds):
        made += list(kind(5, shuffle=True, random_state=repeat).split(y, y))
    return made


def figures(labels, truth, predicted, p):
    """Accuracy and log loss; p: rows of probabilities of the labels. In regression the MSE."""
    if p is None:
        return {"loss": sum((a - b) ** 2 for a, b in zip(truth, predicted)) / len(truth)}
    place = {label: i for i, label in enumerate(labels)}
    loss = -sum(math.log(min(max(row[place[t]], 1e-12), 1)) for t, row in zip(truth, p))
    right = sum(a == b for a, b in zip(truth, predicted))
    return {"loss": loss / len(truth), "accuracy": right / len(truth)}


def spent(work):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.process_time()
    made = work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return made, (
        time.process_time() - began
        + (after.ru_utime - before.ru_utime)
        + (after.ru_stime - before.ru_stime)
    )


def read_probabilities(path):
    with open(path) as file:
        labels = [float(word) for word in file.readline().split()[1:]]
        rows = [[float(word) for word in line.split()] for line in file]
    return labels, [row[0] for row in rows], [row[1:] for row in rows]


def by_rill(files, regression, seed=1):
    train, test, scratch = files
    model, out = f"{scratch}/rill.model", f"{scratch}/rill.out"
    options = [] if seed == 1 else ["--seed", str(seed)]
    said, seconds = spent(lambda: run([RILL, "train", train, "--model", model, *options]).stdout)
    chosen = [line for line in said.splitlines() if ", solver " in line][0]
    more = [] if regression else ["--probability"]
    run([RILL, "predict", test, "--model", model, "-o", out, *more])
    if regression:
        return (None, [float(line) for line in open(out)], None), seconds, chosen
    return read_probabilities(out), seconds, chosen


def liblinear_train(train, model, regression):
    kind = ["-s", "11" if regression else "0", "-B", "1"]
    said = run(["liblinear-train", *kind, "-C", train]).stdout
    best = [line for line in said.splitlines() if line.startswith("Best C")][0]
    C = best.split("=")[1].split()[0]
    run(["liblinear-train", "-q", *kind, "-c", C, train, model])


def by_liblinear(files, regression):
    train, test, scratch = files
    model, out = f"{scratch}/theirs", f"{scratch}/theirs.out"
    _, seconds = spent(lambda: liblinear_train(train, model, regression))
    more = [] if regression else ["-b", "1"]
    run(["liblinear-predict", "-q", *more, test, model, out])
    if regression:
        return (None, [float(line) for line in open(out)], None), seconds
    return read_probabilities(out), seconds


def sklearn_model(X, regression, large):
    import numpy
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    sparse = hasattr(X, "tocsr")
    scale = MaxAbsScaler() if sparse else StandardScaler()
    if regression:
        return Pipeline([("scale", scale), ("fit", RidgeCV(numpy.logspace(-4, 4, 17)))])
    if sparse:
        return GridSearchCV(
            Pipeline([("scale", scale), ("fit", LogisticRegression(max_iter=300))]),
            {
                "scale": [MaxAbsScaler(), "passthrough"],
                "fit__C": numpy.logspace(-1, 3, 3 if large else 5),
            },
            cv=3,
            scoring="neg_log_loss",
        )
    Cs = numpy.logspace(-3, 4, 15)
    fit = LogisticRegressionCV(Cs=Cs, cv=5, scoring="neg_log_loss", max_iter=500)
    return Pipeline([("scale", scale), ("fit", fit)])


def by_sklearn(X, y, test, regression, large):
    model = sklearn_model(X, regression, large)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, seconds = spent(lambda: model.fit(X, y))
        predicted = list(model.predict(test))
        if regression:
            return (None, predicted, None), seconds
        return (list(model.classes_), predicted, model.predict_proba(test).tolist()), seconds


def write_vw(path, svm, labels):
    with open(svm) as rows, open(path, "w") as out:
        for row in rows:
            label, *entries = row.split("#")[0].split()
            if labels:
                label = labels.index(float(label)) + 1
                label = 2 * label - 3 if len(labels) == 2 else label
            out.write(f"{label} | {' '.join(entries)}\n")


def by_vw(files, labels):
    import vowpalwabbit

    train, test, scratch = files
    data, check, out = f"{scratch}/vw.train", f"{scratch}/vw.test", f"{scratch}/vw.out"
    model = f"{scratch}/vw.model"
    write_vw(data, train, labels)
    write_vw(check, test, labels)
    kind = "--loss_function squared"
    if labels:
        kind = "--loss_function logistic --link logistic"
    if labels and len(labels) > 2:
        kind = f"--oaa {len(labels)} --loss_function logistic --probabilities"
    about = f"{kind} -b 22 --passes 20 -c -k --cache_file {scratch}/vw.cache --quiet"

    def work():
        vowpalwabbit.Workspace(f"-d {data} -f {model} {about}").finish()

    began = time.perf_counter()
    _, seconds = spent(work)
    clock = time.perf_counter() - began
    more = "--probabilities" if len(labels) > 2 else ""
    vowpalwabbit.Workspace(f"-d {check} -t -i {model} -p {out} --quiet {more}").finish()
    said = [line.split() for line in open(out)]
    if not labels:
        return (None, [float(line[0]) for line in said], None), seconds, clock
    if len(labels) == 2:
        p = [[1 - float(line[0]), float(line[0])] for line in said]
    else:
        p = [[float(word.split(":")[1]) for word in line] for line in said]
    return (labels, [labels[row.index(max(row))] for row in p], p), seconds, clock


def kept(who, files, work):
    """The figures of a peer on the split that these files are; from the folder KEEP if they are
    there."""
    if not KEEP:
        return work()
    digest = hashlib.sha256(who.encode())
    for path in files[:2]:
        with open(path, "rb") as file:
            digest.update(file.read())
    path = os.path.join(KEEP, digest.hexdigest() + ".json")
    if not os.path.exists(path):
        got = work()
        with open(path, "w") as out:
            json.dump(got, out)
    with open(path) as file:
        return json.load(file)


def one_split(bench, data, rows, found, regression, large):
    """One split: the figures of all go to found. Returns rill's line, the files, the truth."""
    from sklearn.datasets import dump_svmlight_file

    X, y = data
    train, test = rows
    labels = [] if regression else sorted(set(float(label) for label in y[train]))
    files = (f"{bench.scratch}/fold.train", f"{bench.scratch}/fold.test", bench.scratch)
    dump_svmlight_file(X[train], y[train], files[0], zero_based=False)
    dump_svmlight_file(X[test], y[test], files[1], zero_based=False)
    truth = [float(label) for label in y[test]]

    def judged(said, seconds, *chosen):
        return {**figures(said[0], truth, said[1], said[2]), "seconds": seconds}

    ours = by_rill(files, regression)
    found.setdefault("rill", []).append(judged(*ours))
    peers = {
        "liblinear": lambda: by_liblinear(files, regression),
        "sklearn": lambda: by_sklearn(X[train], y[train], X[test], regression, large),
        "vw": lambda: by_vw(files, labels),
    }
    if not have("liblinear-train"):
        peers.pop("liblinear")
    for who in PEERS:
        try:
            if who in peers:
                got = kept(who, files, lambda who=who: judged(*peers[who]()))
                found.setdefault(who, []).append(got)
        except ImportError:
            pass
    return ours[2], files, truth


def seeds_differ(files, truth, count):
    """The spread of the accuracy over seeds, in points."""
    got = [figures(*[said[0], truth, *said[1:]])["accuracy"] for said in
           (by_rill(files, False, seed)[0] for seed in range(1, count + 1))]
    return 100 * (max(got) - min(got))


def compare_times(bench, name, mean, found):
    seconds = {who: statistics.median(f["seconds"] for f in found[who]) for who in found}
    good = [w for w in seconds if w != "rill" and mean[w]["loss"] <= 1.03 * mean["rill"]["loss"]]
    if not good:
        return bench.say(f"    {name}: no peer's loss is within 3 % of rill's")
    fastest = min(good, key=seconds.get)
    ratio, most = seconds["rill"] / seconds[fastest], 0.7 if name in MILLIONS else 1.2
    bench.goal(f"{name}: {ratio:.2f} of the time of {fastest}, at most {most}", ratio <= most)


def judge(bench, name, found, majority, spread):
    mean = {
        who: {key: statistics.mean(f[key] for f in all_) for key in all_[0] if key != "seconds"}
        for who, all_ in found.items()
    }
    for who, all_ in found.items():
        seconds = statistics.median(f["seconds"] for f in all_)
        error = (
            statistics.stdev(f["loss"] for f in all_) / math.sqrt(len(all_)) if len(all_) > 1 else 0
        )
        bench.record(
            set=name, who=who, splits=len(all_), **mean[who], loss_error=error, cpu_s=seconds,
            commit=COMMIT,
        )
        share = 100 * mean[who].get("accuracy", math.nan)
        bench.say(
            f"  {name:18} {who:10} accuracy {share:6.2f} %  loss {mean[who]['loss']:.5g} "
            f"(+- {error:.2g})  {seconds:.2f} s of a processor"
        )
        if who == "rill":
            ours_error = error
    peers = [who for who in mean if who != "rill"]
    compare_times(bench, name, mean, found)
    loss = min(mean[who]["loss"] for who in peers)
    ours = mean["rill"]["loss"]
    bench.goal(
        f"{name}: loss {100 * (ours / loss - 1):+.1f} % of the best peer's: 3 % or its error",
        ours <= 1.03 * loss or ours <= loss + ours_error,
    )
    if "accuracy" in mean["rill"]:
        best = max(mean[who]["accuracy"] for who in peers)
        points = 100 * (mean["rill"]["accuracy"] - best)
        bench.goal(f"{name}: accuracy {points:+.2f} points, at least -0.5", points >= -0.5)
        bench.goal(f"{name}: not behind the majority", mean["rill"]["accuracy"] >= majority - 1e-9)
    if spread is not None:
        bench.record(set=name, who="rill", seeds=3, accuracy_spread_points=spread, commit=COMMIT)
        bench.goal(f"{name}: seeds differ by {spread:.2f} points, below 1", spread < 1)


def part_defaults(bench):
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise Skip("no scikit-learn (pip install scikit-learn)") from error
    wanted = os.environ.get("SETS", " ".join(SMALL if bench.quick else SMALL + LARGE)).split()
    folds = int(os.environ.get("FOLDS", "1" if bench.quick else "10"))
    bench.say("rill train FILE, nothing else; folds of five where a set is small")
    for name in wanted:
        try:
            X, y, test = load_set(bench, name)
        except Skip as why:
            bench.say(f"  {name}: skipped: {why}")
            continue
        found, majority = {}, 0
        for rows in splits(name, y, test, folds):
            chosen, files, truth = one_split(
                bench, (X, y), rows, found, name.startswith("diabetes"), name in LARGE
            )
            majority += max(truth.count(label) for label in set(truth)) / len(truth)
        majority /= len(found["rill"])
        spread = None if name.startswith("diabetes") else seeds_differ(files, truth, 3)
        bench.say(f"  {name:18} {chosen}")
        judge(bench, name, found, majority, spread)
