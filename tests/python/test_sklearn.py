"""rill.sklearn: scikit-learn's own checks, its results, and several ranks."""

import ctypes
import os
import pickle
import shutil
import subprocess
import warnings

import numpy as np
import pytest

try:
    import scipy.sparse as sp
    import sklearn.base

    from rill import _train
    from rill import sklearn as ours

    ALL = [ours.LogisticRegression, ours.LinearSVC, ours.Ridge, ours.SGDClassifier]
except ModuleNotFoundError as missing:
    if str(missing.name).split(".")[0] not in ("scipy", "sklearn"):
        raise
    ALL = []
pytestmark = pytest.mark.skipif(not ALL, reason="scikit-learn is not installed")
# As of scikit-learn's own SGDClassifier.
SGD_FAILS = {
    f"check_sample_weight{name}": "steps with weights are not steps with repeated samples"
    for name in ("s_invariance", "_equivalence_on_dense_data", "_equivalence_on_sparse_data")
}


def data(rows=200, classes=2, seed=0):
    random = np.random.RandomState(seed)
    X = random.randn(rows, 6) * (random.rand(rows, 6) < 0.6)
    z = X @ random.randn(6, classes) + 0.5 * random.randn(rows, classes)
    return X, z.argmax(axis=1), z[:, 0]


@pytest.mark.skipif(os.environ.get("RILL_TEST_SIZE") == "quick", reason="long: 250 checks")
@pytest.mark.parametrize("kind", ALL)
def test_scikit_learns_checks(comm, kind):
    if comm.rank:
        return
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if tuple(int(x) for x in sklearn.__version__.split(".")[:2]) < (1, 6):
            check_estimator(kind())
        else:
            fails = SGD_FAILS if kind is ours.SGDClassifier else {}
            check_estimator(kind(), expected_failed_checks=fails, on_skip=None)


def test_the_optimum_is_scikit_learns(comm):
    if comm.rank:
        return
    from sklearn import linear_model as theirs

    for classes in (2, 3):
        X, y, target = data(classes=classes)
        weight = np.random.RandomState(1).rand(len(y))
        mine = ours.LogisticRegression(C=3).fit(sp.csr_matrix(X), y, weight)
        other = theirs.LogisticRegression(C=3, tol=1e-10, max_iter=10000).fit(X, y, weight)
        assert np.allclose(mine.coef_, other.coef_, atol=1e-5)
        assert np.allclose(mine.predict_proba(X), other.predict_proba(X), atol=1e-5)
        assert ours.SGDClassifier("log_loss", random_state=1).fit(X, y).score(X, y) > 0.7
    mine, other = (kind(alpha=0.5).fit(X, target) for kind in (ours.Ridge, theirs.Ridge))
    assert np.allclose(mine.coef_, other.coef_, atol=1e-8)
    assert np.allclose(mine.intercept_, other.intercept_, atol=1e-8)


@pytest.mark.parametrize("kind", ALL)
def test_clone_and_pickle(comm, kind):
    if comm.rank:
        return
    X, y, _ = data()
    first = sklearn.base.clone(kind(comm=None)).fit(X, y)
    assert (pickle.loads(pickle.dumps(first)).predict(X) == first.predict(X)).all()
    assert sklearn.base.clone(kind(comm="world")).comm == "world"
    with pytest.raises(ValueError, match="comm = 'moon'"):
        kind(comm="moon").fit(X, y)


@pytest.mark.parametrize("kind", ALL)
def test_ranks_have_parts(comm, kind):
    """Samples of all ranks give what one process makes of them; a class may be on one rank."""
    X, y, target = data(rows=60 * comm.size, classes=3)
    order = np.argsort(y, kind="stable")
    X, y = X[order], (target[order] if kind is ours.Ridge else np.array(["a", "b", "c"])[y[order]])
    mine = slice(60 * comm.rank, 60 * (comm.rank + 1))
    fast = {"random_state": 7, "batch_size": 20, "max_iter": 5}
    given = fast if kind is ours.SGDClassifier else {}
    together = kind(comm="world", **given).fit(X[mine], y[mine])
    alone = kind(**given).fit(X, y)
    if kind is not ours.SGDClassifier:
        assert np.allclose(together.coef_, alone.coef_, atol=1e-8)
        assert np.allclose(together.intercept_, alone.intercept_, atol=1e-8)
    assert together.score(X, y) > alone.score(X, y) - 0.05
    every = comm.mpi.allgather(together.coef_.tobytes())
    assert len(set(every)) == 1
    if kind is not ours.Ridge:
        assert list(together.classes_) == ["a", "b", "c"]


def test_a_failure_of_one_rank_is_everybodys(comm):
    if comm.size == 1:
        pytest.skip("one rank")
    X, y, _ = data(rows=20)
    if comm.rank == 1:
        X[3, 2] = np.nan
    with pytest.raises((ValueError, RuntimeError), match="NaN"):
        ours.LogisticRegression(comm="world").fit(X, y)
    with pytest.raises(ValueError, match="features on rank"):
        ours.Ridge(comm="world").fit(X[:2, : 3 + (comm.rank == 0)], y[:2])


@pytest.mark.parametrize("kind", ALL)
def test_negative_weights(comm, kind):
    X, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="negative weight -2"):
        kind().fit(X, y, sample_weight=[1, 1, -2, 1])


def test_structs_are_those_of_the_header(comm, repository, tmp_path):
    compiler = shutil.which("cc")
    if comm.rank or not compiler:
        return
    lines = ["#define RILL_NO_MPI", "#include <rill/train.h>", "#include <stdio.h>"]
    lines += ["int main(void) {"]
    wanted = []
    structs = {
        "rill_data_view": _train.CDataView,
        "rill_train_options": _train.CTrainOptions,
        "rill_train_report": _train.CTrainReport,
        "rill_model_view": _train.CModelView,
    }
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        wanted.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            wanted.append(f"{name}.{field} {getattr(struct, field).offset}")
    lines.append("rill_train_options o = RILL_TRAIN_OPTIONS_INIT;")
    lines.append("const unsigned char *b = (void *)&o;")
    lines.append('for (size_t i = 0; i < sizeof o; i++) printf("%02x", b[i]); return 0; }')
    (tmp_path / "a.c").write_text("\n".join(lines))
    program = str(tmp_path / "a")
    include = f"-I{repository}/include"
    subprocess.run([compiler, include, "-o", program, str(tmp_path / "a.c")], check=True)
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[:-1] == wanted
    assert out[-1] == bytes(_train.options()).hex()
