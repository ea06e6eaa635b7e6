"""The part "others" of bench/train: the part "defaults" on sets that had no part in any rule of
rill's, mostly generated: kinds of data that break linear learners. The peers and limits are the
same. Regression is also compared with the mean of the train rows, classes with the majority.

Environment: SETS, FOLDS (repetitions of five folds; 1), PEERS, KEEP as for "defaults".
fashion-mnist is read from FASHION_MNIST (the folder of Debian's package dataset-fashion-mnist).
"""
import gzip
import os
import statistics

from train_defaults import judge, one_split, seeds_differ
from train_runs import Skip

FASHION = os.environ.get("FASHION_MNIST", "")


def classes(seed=0, **about):
    from sklearn.datasets import make_classification

    return make_classification(random_state=seed, **about)


def line(draw, rows, columns, noise, informative=None):
    """Rows, and a score that depends on some of their columns."""
    X = draw.normal(size=(rows, columns))
    weight = draw.normal(size=columns)
    weight[informative if informative else columns :] = 0
    score = X @ weight
    return X, score + noise * score.std() * draw.normal(size=rows)


def coin(draw, score):
    """Labels of a logistic model: no learner can do better than the score."""
    import numpy

    return (draw.uniform(size=len(score)) < 1 / (1 + numpy.exp(-score))).astype(float)


def iris(draw):
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def wine_units(draw):
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    X[:, 2] *= 1e6
    X[:, 7] *= 1e-6
    return X, y


def twentieth(draw):
    return classes(n_samples=2000, n_features=20, n_informative=6, weights=[0.95], flip_y=0.01)


def hundredth(draw):
    return classes(n_samples=5000, n_features=50, n_informative=10, weights=[0.99], flip_y=0.002)


def redundant(draw):
    return classes(n_samples=1000, n_features=60, n_informative=5, n_redundant=50, flip_y=0.1)


def binary_tenth(draw):
    """Wide sparse rows of ones, a tenth of positives."""
    import numpy
    from scipy.sparse import random

    X = random(3000, 2000, 0.01, "csr", random_state=1, data_rvs=numpy.ones)
    score = X @ (draw.normal(size=2000) * 1.5)
    return X, coin(draw, score - numpy.quantile(score, 0.92))


def binary_hundredth(draw):
    import numpy
    from scipy.sparse import random

    X = random(10000, 5000, 0.005, "csr", random_state=2, data_rvs=numpy.ones)
    score = X @ (draw.normal(size=5000) * 2)
    return X, coin(draw, 2 * (score - numpy.quantile(score, 0.992)))


def few_rows(draw):
    return classes(n_samples=80, n_features=500, n_informative=10, class_sep=2)


def many_rows(draw):
    X, score = line(draw, 100000, 8, 0.5)
    return X * [1, 10, 100, 1, 1, 0.1, 1, 1], coin(draw, score)


def separable(draw):
    X, score = line(draw, 400, 10, 0)
    keep = abs(score) > 0.5
    return X[keep], (score[keep] > 0).astype(float)


def xor(draw):
    X = draw.normal(size=(1000, 6))
    return X, (X[:, 0] * X[:, 1] > 0).astype(float)


def noise(draw):
    return draw.normal(size=(500, 20)), (draw.uniform(size=500) < 0.3).astype(float)


def noise_wide(draw):
    return draw.normal(size=(200, 1000)), (draw.uniform(size=200) < 0.4).astype(float)


def repeated(draw):
    """Constant columns, the same column twice, and rows that come three times."""
    import numpy

    X, score = line(draw, 300, 10, 0.5)
    X = numpy.hstack([X, X[:, :3], numpy.full((300, 2), 7.0), numpy.zeros((300, 1))])
    return numpy.vstack([X] * 3), numpy.concatenate([coin(draw, score)] * 3)


def tails(draw):
    X = draw.standard_t(1.5, size=(2000, 15))
    return X, coin(draw, X @ draw.normal(size=15))


def skewed(draw):
    """Amounts: columns are exponentials of what the score depends on."""
    import numpy

    X, score = line(draw, 2000, 12, 0.3)
    return numpy.exp(1.5 * X), coin(draw, score)


def counts(draw):
    """Words of three topics, counted."""
    import numpy
    from scipy.sparse import csr_matrix

    topic = draw.dirichlet(numpy.full(800, 0.1), size=3)
    y = draw.integers(0, 3, size=900)
    mixed = 0.4 * topic[y] + 0.6 * topic.mean(axis=0)
    length = draw.integers(10, 80, size=900)
    return csr_matrix([draw.multinomial(n, p) for n, p in zip(length, mixed)], dtype=float), y


def text(draw):
    """Twenty topics, words by tf-idf, rows of length 1."""
    import numpy
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    base = 1.0 / numpy.arange(1, 5001)
    topic = base * draw.gamma(0.3, size=(20, 5000))
    y = draw.integers(0, 20, size=2000)
    words = 0.5 * topic[y] / topic.sum(axis=1)[y][:, None] + 0.5 * base / base.sum()
    length = draw.integers(20, 150, size=2000)
    X = csr_matrix([draw.multinomial(n, p / p.sum()) for n, p in zip(length, words)], dtype=float)
    return TfidfTransformer(sublinear_tf=True).fit_transform(X), y


def seven(draw):
    """Seven classes of very different size, labels 1 to 7; metres beside flags."""
    import numpy

    X, y = classes(n_samples=4000, n_features=12, n_informative=8, n_classes=7,
                   weights=[0.45, 0.3, 0.1, 0.06, 0.05, 0.03, 0.01])
    X = X * 10.0 ** draw.integers(0, 4, size=12) + 2000 * (draw.uniform(size=12) < 0.5)
    flags = numpy.eye(30)[(y * 3 + draw.integers(0, 25, size=len(y))) % 30]
    return numpy.hstack([X, flags]), y + 1


def connections(draw):
    """Like KDD cup's: bytes with long tails, rates, services; five classes."""
    import numpy

    kind = draw.choice(5, size=5000, p=[0.6, 0.25, 0.1, 0.04, 0.01])
    size = numpy.exp(draw.normal(size=(5000, 2)) * 2 + kind[:, None] % 3 + 3)
    rate = numpy.clip(draw.normal(size=(5000, 4)) * 0.3 + 0.2 * kind[:, None], 0, 1)
    service = numpy.eye(40)[(kind * 7 + draw.integers(0, 20, size=5000)) % 40]
    zero = (draw.uniform(size=(5000, 3)) < 0.02) * draw.integers(1, 500, size=(5000, 3))
    return numpy.hstack([size, rate, service, zero]), kind


def fashion(draw):
    """One split of 7,000 pictures, in grey values of 0 to 255."""
    import numpy

    def read(name, skip):
        path = f"{FASHION}/{name}.gz"
        if not os.path.exists(path):
            raise Skip("there is no fashion-mnist: set FASHION_MNIST")
        with gzip.open(path) as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=skip)

    X = read("train-images-idx3-ubyte", 16).reshape(-1, 784)[:7000].astype(float)
    return X, read("train-labels-idx1-ubyte", 8)[:7000].astype(float)


# ---- regression


def linnerud(draw):
    from sklearn.datasets import load_linnerud

    X, y = load_linnerud(return_X_y=True)
    return X, y[:, 0]


def houses(draw):
    """Like California's: skewed columns, places, a target that is cut off."""
    import numpy

    rows = 8000
    income = draw.lognormal(1.2, 0.5, rows)
    rooms = draw.lognormal(1.6, 0.3, rows) * (1 + 20 * (draw.uniform(size=rows) < 0.003))
    people = draw.lognormal(7, 0.7, rows)
    place = draw.uniform(size=(rows, 2)) * [10, 10] + [32, -124]
    age = draw.integers(1, 52, rows)
    price = 0.45 * income + 0.01 * age - 0.4 * (place[:, 0] - 36) - 0.4 * (place[:, 1] + 119)
    price += 0.1 * rooms + draw.normal(size=rows) * 0.7
    X = numpy.column_stack([income, age, rooms, rooms / 5 + draw.normal(size=rows) / 9, people,
                            people / draw.lognormal(6, 0.3, rows), place])
    return X, numpy.clip(price + 1, 0.15, 5.001)


def friedman(draw):
    from sklearn.datasets import make_friedman1

    return make_friedman1(n_samples=500, n_features=10, noise=1, random_state=3)


def outliers(draw):
    X, y = line(draw, 1000, 10, 0.3)
    return X, y + 60 * draw.normal(size=1000) * (draw.uniform(size=1000) < 0.02)


def whole(draw):
    """Whole numbers, 95 of them in 800 rows."""
    X, y = line(draw, 800, 12, 0.4)
    return X, (y * 15 / y.std() + 40).clip(0, 94).round()


def counted(draw):
    """Poisson counts."""
    import numpy

    X, score = line(draw, 2000, 6, 0)
    return X, draw.poisson(numpy.exp(2 + 0.5 * score / score.std())).astype(float)


def offset(draw):
    X, y = line(draw, 600, 8, 0.5)
    return X * [1, 1, 1, 1, 1e6, 1e-6, 1, 1], y + 1e6


def tiny(draw):
    X, y = line(draw, 600, 8, 0.5)
    return X, 1e-6 * y


def large_targets(draw):
    X, y = line(draw, 600, 8, 0.5)
    return X + 1000, 1e7 * y


def collinear(draw):
    from sklearn.datasets import make_regression

    return make_regression(200, 100, n_informative=10, effective_rank=8, noise=3, random_state=5)


def wide_numbers(draw):
    from sklearn.datasets import make_regression

    return make_regression(100, 1000, n_informative=15, noise=10, random_state=6)


def words_numbers(draw):
    """A number from sparse words, more of them than rows."""
    import numpy
    from scipy.sparse import random

    X = random(1500, 4000, 0.01, "csr", random_state=3, data_rvs=lambda n: draw.exponential(size=n))
    score = X @ (draw.normal(size=4000) * (draw.uniform(size=4000) < 0.1))
    return X, score + numpy.std(score) * 0.5 * draw.normal(size=1500)


def no_signal(draw):
    return draw.normal(size=(300, 15)), draw.normal(size=300) + 5


CLASSES = {
    "iris": iris, "wine-units": wine_units, "twentieth": twentieth, "hundredth": hundredth,
    "redundant": redundant, "binary-tenth": binary_tenth, "binary-hundredth": binary_hundredth,
    "few-rows": few_rows, "many-rows": many_rows, "separable": separable, "xor": xor,
    "noise": noise, "noise-wide": noise_wide, "repeated": repeated, "tails": tails,
    "skewed": skewed, "counts": counts, "text": text, "seven": seven, "connections": connections,
    "fashion-mnist": fashion,
}
NUMBERS = {
    "linnerud": linnerud, "houses": houses, "friedman": friedman, "outliers": outliers,
    "whole": whole, "counted": counted, "offset": offset, "tiny": tiny,
    "large-targets": large_targets, "collinear": collinear, "wide-numbers": wide_numbers,
    "words-numbers": words_numbers, "no-signal": no_signal,
}
ONE_SPLIT = ("many-rows", "fashion-mnist")


def splits(name, y, folds):
    from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold

    if name in ONE_SPLIT:
        return list(ShuffleSplit(1, test_size=0.2, random_state=1).split(y))
    kind = StratifiedKFold if name in CLASSES else KFold
    return [rows for repeat in range(folds)
            for rows in kind(5, shuffle=True, random_state=repeat).split(y, y)]


def part_others(bench):
    try:
        import numpy
        import sklearn  # noqa: F401
    except ImportError as error:
        raise Skip("no scikit-learn (pip install scikit-learn)") from error
    wanted = os.environ.get("SETS", " ".join({**CLASSES, **NUMBERS})).split()
    folds = int(os.environ.get("FOLDS", "1"))
    bench.say("rill train FILE, nothing else, on other sets")
    for name in wanted:
        regression = name in NUMBERS
        try:
            X, y = {**CLASSES, **NUMBERS}[name](numpy.random.default_rng(11))
        except Skip as why:
            bench.say(f"  {name}: skipped: {why}")
            continue
        found, plain = {}, []
        for rows in splits(name, y, folds):
            chosen, files, truth = one_split(bench, (X, y), rows, found, regression, False)
            if regression:
                plain.append(((y[rows[1]] - y[rows[0]].mean()) ** 2).mean())
            else:
                plain.append(max(truth.count(label) for label in set(truth)) / len(truth))
        spread = None if regression else seeds_differ(files, truth, 3)
        bench.say(f"  {name:18} {chosen}")
        judge(bench, name, found, None if regression else statistics.mean(plain), spread)
        if regression:
            ratio = statistics.mean(f["loss"] for f in found["rill"]) / statistics.mean(plain)
            bench.goal(f"{name}: {ratio:.4g} of the mean's error, at most 1.03", ratio <= 1.03)
