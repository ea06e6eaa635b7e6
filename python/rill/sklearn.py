"""Estimators for scikit-learn that librill_train fits: LogisticRegression, LinearSVC, Ridge and
SGDClassifier.

They take dense and sparse X, weights of samples, and scikit-learn's names for what both have. On
several ranks ``comm="world"`` fits them together: X and y are the rank's own part, and all ranks
get the same model. ``comm`` is a name, so that estimators can be cloned and pickled.

    >>> from rill.sklearn import LogisticRegression
    >>> LogisticRegression(C=10).fit(X, y).score(X, y)  # doctest: +SKIP
"""

from __future__ import annotations

import pickle
from typing import Any, Callable, Optional

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from . import _train
from ._world import world

__all__ = ["LinearSVC", "LogisticRegression", "Ridge", "SGDClassifier"]

_MOST_POLISHED = 50_000  # weights that are refined in double


def _ranks(comm: Optional[str]) -> _train.Ranks:
    if comm is None:
        return _train.Ranks(None)
    if comm != "world":
        raise ValueError(f"comm = {comm!r} is neither None nor 'world'")
    return _train.Ranks(world())


def _checked(estimator: Any, X: Any, *y: Any, **how: Any) -> Any:
    """X, or X and y, as arrays that scikit-learn has looked at."""
    how = dict(accept_sparse="csr", dtype=np.float64, **how)
    if y and y[0] is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    if hasattr(estimator, "_validate_data"):  # before scikit-learn 1.6
        return estimator._validate_data(X, *y, **how)
    from sklearn.utils.validation import validate_data

    return validate_data(estimator, X, *y, **how)


def _together(ranks: _train.Ranks, look: Callable[[], Any], estimator: Any) -> Any:
    """What a look at this rank's samples gives. A failure of one rank is everybody's."""
    failure: Optional[Exception] = None
    try:
        found = look()
    except Exception as error:
        failure = error
    if ranks.size > 1:
        mine = repr(failure) if failure else "", getattr(estimator, "n_features_in_", 0)
        every = [pickle.loads(part) for part in ranks.join(pickle.dumps(mine))]
        for rank, (words, features) in enumerate(every):
            if words and not failure:
                failure = RuntimeError(f"rank {rank} failed: {words}")
            elif not words and not failure and features != mine[1]:
                failure = ValueError(f"X has {features} features on rank {rank}, here {mine[1]}")
    if failure:
        raise failure
    return found


def _rows(X: Any) -> Any:
    """CSR, with ascending indices and no duplicates."""
    made = sp.csr_matrix(X, dtype=np.float64)
    made.sum_duplicates()
    made.sort_indices()
    return made


class _Linear(BaseEstimator):
    comm: Optional[str]
    fit_intercept: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _set(self, weights: np.ndarray) -> None:
        self.coef_ = np.ascontiguousarray(weights[: self.n_features_in_].T)
        rest = weights[self.n_features_in_ :]
        self.intercept_ = rest[0].copy() if len(rest) else np.zeros(weights.shape[1])

    def _decide(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = _checked(self, X, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)


def _polish(
    ranks: _train.Ranks, X: Any, weights: np.ndarray, l2: float, intercept: bool,
    slopes: Callable[[np.ndarray], np.ndarray],
    bend: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Newton's steps in double from weights that are at the optimum as far as floats go. slopes: of
    the loss by row and column, at decision values; bend: its curvature times a change of them."""
    if weights.size > _MOST_POLISHED:
        return weights
    penalty = np.full((len(weights), 1), l2)
    if intercept:
        X = sp.hstack([X, np.ones((X.shape[0], 1))], format="csr")
        penalty[-1] = 0
    norm = np.inf
    for _ in range(20):
        z = X @ weights
        gradient = ranks.sum(X.T @ slopes(z)) + penalty * weights
        if not np.linalg.norm(gradient) < 0.5 * norm:
            break
        norm = float(np.linalg.norm(gradient))

        def product(v: np.ndarray, z: np.ndarray = z) -> np.ndarray:
            return ranks.sum(X.T @ bend(z, X @ v)) + penalty * v

        weights = weights - _conjugate_gradients(product, gradient)
    return weights


def _conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray
) -> np.ndarray:
    x, r = np.zeros_like(right), right.copy()
    p, rr = r.copy(), float((r * r).sum())
    enough = 1e-22 * rr
    for _ in range(2 * right.size + 50):
        if rr <= enough:
            break
        q = product(p)
        curvature = float((p * q).sum())
        if curvature <= 0:
            break
        x += rr / curvature * p
        r -= rr / curvature * q
        rr, before = float((r * r).sum()), rr
        p = r + rr / before * p
    return x


def _weights(sample_weight: Any, X: Any) -> np.ndarray:
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(f"sample_weight has the negative weight {weight.min():g}")
    return np.asarray(weight)


class _Classifier(ClassifierMixin, _Linear):
    _loss = "logistic"

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X, y = _checked(self, X, y)
        check_classification_targets(y)
        weight = _weights(sample_weight, X)
        return _rows(X), y, weight

    def _classes(self, ranks: _train.Ranks, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The classes of all ranks; returns which one each row has. Rows of no weight have none."""
        every = [pickle.loads(part) for part in ranks.join(pickle.dumps(np.unique(y[weight > 0])))]
        self.classes_ = np.unique(np.concatenate(every))
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, "
                f"but the data contains only one class: {self.classes_[0]!r}"
                if len(self.classes_)
                else "all samples have the weight 0"
            )
        return np.asarray(np.searchsorted(self.classes_, y))

    def _weigh(
        self, ranks: _train.Ranks, number: np.ndarray, weight: np.ndarray, y: np.ndarray
    ) -> np.ndarray:
        chosen = getattr(self, "class_weight", None)
        if chosen is None:
            return weight
        if chosen == "balanced":
            counts = ranks.sum(np.bincount(number, weight, len(self.classes_)))
            by_class = counts.sum() / (len(counts) * counts)
        else:
            by_class = compute_class_weight(chosen, classes=self.classes_, y=y)
        return weight * by_class[number]

    def _fit(self, X: Any, y: Any, sample_weight: Any, **given: Any) -> Any:
        ranks = _ranks(self.comm)
        try:
            X, y, weight = _together(ranks, lambda: self._prepare(X, y, sample_weight), self)
            used = weight > 0
            number = self._classes(ranks, y[used], weight[used])
            X, weight = X[used], self._weigh(ranks, number, weight[used], y[used])
            if "alpha" in given:
                total = float(ranks.sum(np.array([float(len(number))]))[0])
                given["C"] = 1 / (given.pop("alpha") * total)
            found, self.n_iter_ = _train.fit(
                ranks, X, number, weight, self.max_iter, self.n_features_in_, task="classify",
                loss=self._loss, intercept=int(self.fit_intercept), **given,
            )  # fmt: skip
            if given.get("solver") == "newton":
                found = self._refine(ranks, X, number, weight, found, given["C"])
        finally:
            ranks.close()
        self._set(found)
        return self

    def _refine(
        self, ranks: _train.Ranks, X: Any, number: np.ndarray, weight: np.ndarray,
        found: np.ndarray, C: float,
    ) -> np.ndarray:  # fmt: skip
        by = C * weight[:, None]
        columns = found.shape[1]
        sides = np.where(number[:, None] == (np.arange(columns) if columns > 1 else 1), 1.0, -1.0)

        def slopes(z: np.ndarray) -> np.ndarray:
            if self._loss == "squared_hinge":
                return -2 * by * sides * np.maximum(0, 1 - sides * z)
            if columns == 1:
                return -by * sides * expit(-sides * z)
            return by * (softmax(z, axis=1) - (sides > 0))

        def bend(z: np.ndarray, v: np.ndarray) -> np.ndarray:
            if self._loss == "squared_hinge":
                return 2 * by * (sides * z < 1) * v
            if columns == 1:
                return by * expit(z) * expit(-z) * v
            p = softmax(z, axis=1)
            return by * p * (v - (p * v).sum(axis=1, keepdims=True))

        found = _polish(ranks, X, found, 1.0, self.fit_intercept, slopes, bend)
        if columns > 1 and self._loss == "logistic" and self.fit_intercept:
            found[-1] -= found[-1].mean()
        return found

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: of the second class of two, else of each class."""
        z = self._decide(X)
        return z[:, 0] if z.shape[1] == 1 else z

    def predict(self, X: Any) -> np.ndarray:
        """The class of each sample."""
        z = self._decide(X)
        best = (z[:, 0] > 0).astype(int) if z.shape[1] == 1 else z.argmax(axis=1)
        return np.asarray(self.classes_[best])


class _ByNewton(_Classifier):
    def __init__(
        self, *, C: float = 1.0, fit_intercept: bool = True, class_weight: Any = None,
        tol: float = 1e-6, max_iter: int = 100, comm: Optional[str] = None,
    ) -> None:  # fmt: skip
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.comm = comm

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the model. On several ranks all of them call this, each with its own samples."""
        return self._fit(X, y, sample_weight, C=self.C, solver="newton", tolerance=self.tol)


class LogisticRegression(_ByNewton):
    """Logistic regression: minimises C sum of losses + |w|^2 / 2, with an intercept that is not
    penalised; more than two classes are one problem (softmax). As scikit-learn's, to the
    optimum."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes."""
        z = self._decide(X)
        if z.shape[1] > 1:
            return np.asarray(softmax(z, axis=1))
        return np.hstack([expit(-z), expit(z)])

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms."""
        return np.log(self.predict_proba(X))


class LinearSVC(_ByNewton):
    """Support vector machine with squared hinge: minimises C sum of losses + |w|^2 / 2, one problem
    per class against the rest. Unlike scikit-learn's the intercept is not penalised."""

    _loss = "squared_hinge"


class SGDClassifier(_Classifier):
    """Mini-batch stochastic gradient descent with AdaGrad: minimises mean loss + alpha |w|^2 / 2.
    ``loss`` is "hinge", "log_loss" or "squared_hinge"; ``max_iter`` passes are made."""

    def __init__(
        self, loss: str = "hinge", *, alpha: float = 1e-4, fit_intercept: bool = True,
        class_weight: Any = None, max_iter: int = 20, batch_size: int = 0,
        random_state: Any = None, comm: Optional[str] = None,
    ) -> None:  # fmt: skip
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.random_state = random_state
        self.comm = comm

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SGDClassifier":
        """Fits the model. On several ranks all of them call this, each with its own samples, and
        with the same ``random_state``, a number."""
        names = {"hinge": "hinge", "log_loss": "logistic", "squared_hinge": "squared_hinge"}
        if self.loss not in names:
            raise ValueError(f"loss = {self.loss!r} is none of {', '.join(names)}")
        self._loss = names[self.loss]
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        given = {"multiclass": "ovr"} if self._loss == "logistic" else {}
        return self._fit(
            X, y, sample_weight, alpha=self.alpha, solver="sgd", seed=int(seed),
            batch=self.batch_size, **given,
        )  # fmt: skip

    def __sklearn_tags__(self) -> Any:  # who has _more_tags must have this, too
        return super().__sklearn_tags__()

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        why = "zero sample_weight is not equivalent to removing samples: steps differ"
        return {"_xfail_checks": {"check_sample_weights_invariance": why}}


class Ridge(RegressorMixin, _Linear):
    """Least squares: minimises the sum of squared errors + alpha |w|^2, with an intercept that is
    not penalised. As scikit-learn's."""

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, tol: float = 1e-6,
        max_iter: int = 100, comm: Optional[str] = None,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.comm = comm

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Ridge":
        """Fits the model. On several ranks all of them call this, each with its own samples."""
        ranks = _ranks(self.comm)
        try:
            X, y, weight = _together(ranks, lambda: self._prepare(X, y, sample_weight), self)
            found, self.n_iter_ = _train.fit(
                ranks, X, y, weight, self.max_iter, self.n_features_in_, task="regress",
                loss="squared", solver="newton", tolerance=self.tol, l2=2 * self.alpha,
                intercept=int(self.fit_intercept),
            )  # fmt: skip
            by = 2 * weight[:, None]
            found = _polish(
                ranks, X, found, 2 * self.alpha, self.fit_intercept,
                lambda z: by * (z - y[:, None]), lambda z, v: by * v,
            )  # fmt: skip
        finally:
            ranks.close()
        self._set(found)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X, y = _checked(self, X, y, y_numeric=True)
        weight = _weights(sample_weight, X)
        used = weight > 0
        return _rows(X)[used], np.asarray(y, np.float64)[used], weight[used]

    def predict(self, X: Any) -> np.ndarray:
        """The value of each sample."""
        check_is_fitted(self)
        X = _checked(self, X, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)
