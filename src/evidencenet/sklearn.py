"""`EvidenceClassifier`: the network with the interface of scikit-learn, for those who expect it.

Classes are models, rows of X are draws, and the classifier's probabilities are posterior probabilities of the
models. Everything else (log K, its error, the validated range, novelty) is in its attribute ``network_``.
"""

from typing import Any

import numpy as np

from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.train import train
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.recipe import Recipe

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "evidencenet.sklearn needs scikit-learn, which is not installed: pip install scikit-learn. "
        "evidencenet.train does the same without it."
    ) from error

# Of three rows one can be held out for early stopping, and two are left to train on.
_LEAST_OF_CLASS, _HELD_OUT_OF_FEW = 3, 0.3
# Fewer rows than this are no use for trials of plans, and for batches of the usual size.
_FEW_ROWS = 1_000
# Passes over few rows, if `epochs` does not say.
_EPOCHS_OF_FEW = 30


class EvidenceClassifier(ClassifierMixin, BaseEstimator):
    """Train an `EvidenceNetwork` on labelled draws, as a scikit-learn classifier.

    Parameters
    ----------
    members
        Networks in the ensemble.
    epochs
        Passes over the draws. None lets `train` choose plan and length by trials.
    learn_error
        Learn the error of log K, at about twice the time.
    prior
        Prior probabilities of the classes, in the order of ``classes_``; None for equal ones. The shares of
        the classes in y do not matter.
    seed
        The same seed gives the same network.

    Attributes
    ----------
    classes_
        The classes, sorted, shape (K,).
    network_
        The trained `EvidenceNetwork`; ask it for log K.

    Examples
    --------
    >>> clf = EvidenceClassifier().fit(X, y)            # doctest: +SKIP
    >>> clf.predict_proba(X_new)                        # doctest: +SKIP
    >>> clf.network_.compare(X_new[0])                  # doctest: +SKIP
    """

    def __init__(
        self,
        members: int = 4,
        epochs: int | None = None,
        learn_error: bool = True,
        prior: Any = None,
        seed: int = 0,
    ) -> None:
        self.members = members
        self.epochs = epochs
        self.learn_error = learn_error
        self.prior = prior
        self.seed = seed

    def fit(self, X: Any, y: Any) -> "EvidenceClassifier":
        """Train on draws X, (n, d), of the classes y, (n,)."""
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a comparison needs two or more.")
        label = np.searchsorted(self.classes_, y)
        counts = np.bincount(label)
        if counts.min() < _LEAST_OF_CLASS:
            raise ValueError(
                f"class {str(self.classes_[counts.argmin()])!r} has {counts.min()} rows; wanted "
                f"{_LEAST_OF_CLASS} or more of each class, and thousands for a useful network."
            )
        recipe = None if self.epochs is None else Recipe(epochs=self.epochs)
        if len(y) < _FEW_ROWS:
            epochs = self.epochs or _EPOCHS_OF_FEW
            recipe = Recipe(epochs=epochs, batch=max(1, len(y) // 10), held_out=_HELD_OUT_OF_FEW)
        names = [str(name) for name in self.classes_]
        # scikit-learn keeps the names of columns if all are text.
        columns = getattr(self, "feature_names_in_", None)
        sims = Simulations(X, label, names if len(set(names)) == len(names) else None, columns=columns)
        self.network_: EvidenceNetwork = train(
            sims,
            members=self.members,
            recipe=recipe,
            learn_error=self.learn_error,
            seed=self.seed,
            progress=False,
        )
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Posterior probability of each class, shape (n, K)."""
        rows = self._rows(X)
        return self.network_.probabilities(rows, prior=self.prior)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row, shape (n,)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def decision_function(self, X: Any) -> np.ndarray:
        """Log posterior odds: of the second class against the first, (n,); of more, log p of each, (n, K)."""
        with np.errstate(divide="ignore"):
            log_p = np.log(self.predict_proba(X))
        return log_p[:, 1] - log_p[:, 0] if len(self.classes_) == 2 else log_p

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))
