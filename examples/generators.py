"""Models without parameters: two generators of digits, and two classes of labelled real data.

    python examples/generators.py [--quick] [--draws 2e5] [--dim 5] [--folds 5] [--out FOLDER]

1. A Gaussian mixture and a kernel density estimate are fitted to half of scikit-learn's handwritten digits
   (their leading principal components). The network sees only draws of the two. Both densities are known, so
   log K can be checked, also for the real digits of the other half.
2. Benign and malignant tumours, by three measurements of 569 labelled cases. log K is the weight of evidence
   for malignancy; no density is known, and no more draws can be made. Each case is judged by a network that
   has not seen it, and networks of separate halves show whether the stated errors are right.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evidencenet as en
from _common import Result, Row, binned, figure, rms, run
from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import score
from evidencenet.report import plots

QUICK = {"draws": 20_000, "fresh": 5_000, "folds": 2, "choose": False}
COMPONENTS = 4
MEASUREMENTS = ("mean texture", "mean smoothness", "mean symmetry")


class Generators(NamedTuple):
    """Two models of digits, their exact log K, real digits not used for either, and a function to pixels."""

    models: tuple[en.Model, en.Model]
    log_bayes_factor: Callable[[np.ndarray], np.ndarray]
    unseen: np.ndarray
    pixels: Callable[[np.ndarray], np.ndarray]


def generators(dim: int) -> Generators:
    """Fit a Gaussian mixture (model 0) and a kernel density estimate (model 1) to every other digit."""
    digits = load_digits().data
    pca = PCA(dim, whiten=True, random_state=0).fit(digits[::2])
    seen, unseen = pca.transform(digits[::2]), pca.transform(digits[1::2])
    mixture = GaussianMixture(COMPONENTS, reg_covar=1e-2, random_state=0).fit(seen)
    bandwidth = len(seen) ** (-1 / (dim + 4))  # Scott's rule; the components have unit variance
    roots = np.linalg.cholesky(mixture.covariances_)

    def draw_mixture(rng: np.random.Generator, n: int) -> np.ndarray:
        which = rng.choice(COMPONENTS, size=n, p=mixture.weights_)
        return mixture.means_[which] + np.einsum("nij,nj->ni", roots[which], rng.normal(size=(n, dim)))

    def draw_kernels(rng: np.random.Generator, n: int) -> np.ndarray:
        return seen[rng.integers(len(seen), size=n)] + bandwidth * rng.normal(size=(n, dim))

    def log_kernels(z: np.ndarray) -> np.ndarray:
        squares = ((z[:, None] - seen) ** 2).sum(axis=2) / bandwidth**2
        constant = np.log(len(seen)) + dim * np.log(bandwidth * np.sqrt(2 * np.pi))
        return np.asarray(logsumexp(-0.5 * squares, axis=1) - constant)

    def log_bayes_factor(z: np.ndarray) -> np.ndarray:
        parts = np.array_split(z, -(-len(z) // 1000))
        return np.concatenate([log_kernels(part) - mixture.score_samples(part) for part in parts])

    models = en.Model("mixture", draw_mixture), en.Model("kernels", draw_kernels)
    return Generators(models, log_bayes_factor, unseen, pca.inverse_transform)


def main(
    *,
    dim: int = 5,
    draws: int = 200_000,
    fresh: int = 20_000,
    folds: int = 5,
    choose: bool = True,
    seed: int = 1,
) -> Result:
    """Compare the generators, then the classes.

    Parameters
    ----------
    dim
        Principal components of the digits.
    draws, fresh
        Of both generators together, to train on and to judge by.
    folds
        Parts of the labelled data, each judged by a network trained on all others.
    choose
        Whether to choose how to train by trials, as the default call does.
    seed
        Fixes all random numbers.
    """
    few: dict[str, Any] = {"progress": False}
    many = few
    if not choose:
        many = few | {"recipe": en.Recipe(epochs=10), "loss": en.losses.Logistic(), "members": 2}
        many["network"] = en.networks.Dense(width=128, hidden=64)
        few = few | {"recipe": en.Recipe(epochs=10), "baseline": True, "members": 2}
    digits = compare_generators(dim, draws, fresh, seed, **many)
    labelled = compare_classes(folds, seed, **few)
    return Result(
        f"Models without parameters: generators of digits ({dim} numbers, {draws:,} draws), labelled data",
        [*digits.rows, *labelled.rows],
        {"digits": digits.numbers, "labelled": labelled.numbers},
        {**digits.figures, **labelled.figures},
    )


def compare_generators(dim: int, draws: int, fresh: int, seed: int, **options: Any) -> Result:
    """Train on draws of both generators, and compare with their exact densities."""
    made = generators(dim)
    net = en.train(en.simulate(made.models, draws, seed=seed, progress=False), seed=seed, **options)
    others = en.simulate(made.models, fresh, seed=seed + 1000, progress=False)
    x = np.asarray(others.x)
    log_k, exact, error = net.log_bayes_factor(x), made.log_bayes_factor(x), net.error(x)
    inside = net.ranges[0].contains(log_k)
    small = np.abs(exact) < 6
    # Generators have no parameters to share: the log K of independent digits do add up.
    total = net.combine(made.unseen, independent=True)
    digits, exact_total = len(made.unseen), made.log_bayes_factor(made.unseen).sum()
    numbers = {
        "rmse": rms((log_k - exact)[small]),
        "spread": float(exact[small].std()),
        "pull": rms(((log_k - exact) / error)[inside]),
        "excess": score(log_k, others.model).value - score(exact, others.model).value,
        "coverage": en.coverage(log_k, others.model).p_value,
        "range": [net.ranges[0].low, net.ranges[0].high],
        "unseen": {"n": digits, "value": total.value, "error": total.error, "exact": exact_total},
        "by_log_k": binned(log_k, exact, np.arange(-10, 21, 2)),
    }
    rows = [
        Row(
            "generators: RMSE of ln K below 6",
            f"{numbers['rmse']:.3f} of a spread of {numbers['spread']:.2f}",
        ),
        Row("generators: RMS of error over stated error, validated range", f"{numbers['pull']:.2f}"),
        Row("generators: log score above that of the densities", f"{numbers['excess']:.4f} nats"),
        Row("generators: coverage", f"p-value {numbers['coverage']:.2g}"),
        Row(
            f"generators: mean ln K of {digits} unseen real digits",
            f"{total.value / digits:.2f} ± {total.error / digits:.2f}, exact {exact_total / digits:.2f}",
        ),
    ]
    drawn = draw_generators(made, log_k, exact, en.coverage(log_k, others.model), seed)
    return Result("generators", rows, numbers, {"digits": drawn})


def compare_classes(folds: int, seed: int, **options: Any) -> Result:
    """Cross-validate log K of two classes of real data, and compare networks of separate halves."""
    data = load_breast_cancer()
    x = data.data[:, [list(data.feature_names).index(name) for name in MEASUREMENTS]]
    label, names = 1 - data.target, ("benign", "malignant")
    part = np.random.default_rng(seed).permutation(len(x)) % folds
    log_k, error, peer = np.zeros((3, len(x)))
    for fold in range(folds):
        mine, others = part == fold, part != fold
        net = en.train(en.Simulations(x[others], label[others], names=names), seed=seed + fold, **options)
        log_k[mine], error[mine] = net.log_bayes_factor(x[mine]), net.error(x[mine])
        line = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[others], label[others])
        peer[mine] = line.decision_function(x[mine])
    prior = np.log(label.mean() / (1 - label.mean()))
    gain, peer_gain = score(log_k + prior, label), score(peer, label)
    test, validated = en.coverage(log_k, label), validated_range(log_k, label)
    pull = halves(x, label, names, seed, **options)
    inside = float(validated.contains(log_k).mean())
    numbers = {
        "gain": [gain.gain, gain.gain_error],
        "gain_of_logistic_regression": [peer_gain.gain, peer_gain.gain_error],
        "coverage": test.p_value,
        "range": [validated.low, validated.high],
        "inside": inside,
        "median_error": float(np.median(error)),
        "halves_pull": pull,
    }
    rows = [
        Row("labelled: gain of held-out log score", f"{gain.gain:.3f} ± {gain.gain_error:.3f} nats"),
        Row(
            "labelled: the same of logistic regression",
            f"{peer_gain.gain:.3f} ± {peer_gain.gain_error:.3f} nats",
        ),
        Row("labelled: coverage", f"p-value {test.p_value:.2g}"),
        Row(
            "labelled: validated ln K",
            f"{validated.low:.1f} to {validated.high:.1f} ({100 * inside:.0f}% of cases); "
            f"median stated error {numbers['median_error']:.2f}".replace("-", "−"),
        ),
        Row("labelled: RMS difference of separate halves over stated error", f"{pull:.2f}"),
    ]
    made, (left, right) = figure((10, 4.2), 1, 2)
    plots.coverage(test, left, name=names[1])
    plots.log_k_distributions(log_k, label, names, axis=right, validated=validated)
    return Result("labelled data", rows, numbers, {"labelled": made})


def halves(x: np.ndarray, label: np.ndarray, names: tuple[str, str], seed: int, **options: Any) -> float:
    """Train on two halves apart; return the RMS of their difference over its stated error."""
    order = np.random.default_rng(seed).permutation(len(x))
    nets = [
        en.train(en.Simulations(x[some], label[some], names=names), seed=seed + 100 + number, **options)
        for number, some in enumerate((order[::2], order[1::2]))
    ]
    first, second = (net.log_bayes_factor(x) for net in nets)
    stated = np.hypot(*(net.error(x) for net in nets))
    inside = nets[0].ranges[0].contains(first) & nets[1].ranges[0].contains(second)
    some = inside if inside.any() else np.ones_like(inside)
    return rms(((first - second) / stated)[some])


def draw_generators(made: Generators, log_k: np.ndarray, exact: np.ndarray, test: Any, seed: int) -> Figure:
    """Draw digits of each source, log K against its exact value, and the coverage test."""
    whole, (left, middle, right) = figure((13, 4.2), 1, 3)
    rng = np.random.default_rng(seed)
    sources = [made.unseen[rng.choice(len(made.unseen), 6, replace=False)]]
    sources += [np.asarray(model.draw(rng, 6)[0]) for model in made.models]
    # Each picture of 8 × 8 pixels has a white frame.
    framed = [np.pad(made.pixels(z).reshape(6, 8, 8), ((0, 0), (1, 1), (1, 1))) for z in sources]
    strips = [np.hstack(list(pictures)) for pictures in framed]
    left.imshow(np.vstack(strips), cmap="gray_r", vmin=0, vmax=16)
    left.set_yticks([4.5, 14.5, 24.5], ["real", *(model.name for model in made.models)])
    left.set_xticks([])
    left.set_title("digits in the space of the generators", fontsize="medium")
    some = slice(None, None, max(1, len(exact) // 4000))
    plots.log_k(log_k[some], exact[some], middle, base10=False)
    plots.coverage(test, right, name=made.models[1].name)
    return whole


if __name__ == "__main__":
    run(main, quick=QUICK)
