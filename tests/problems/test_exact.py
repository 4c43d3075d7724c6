"""Evidences compared with scipy's densities, adaptive quadrature, or draws of the prior."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from evidencenet import problems
from evidencenet.problems import Problem
from routes import agrees_with_prior_draws, draws, log_quad, normal


@pytest.mark.parametrize("noise", [1.0, 0.15])
def test_time_series_against_scipy(noise: float) -> None:
    dim = 20
    problem = problems.time_series(dim, noise)
    x = draws(problem)
    t = [j * np.pi / 2 / (dim - 1) for j in range(dim)]
    a = np.array([[2 * tj if i == 0 else np.cos((i - 0.5) * tj) for i in range(dim)] for tj in t])
    sigma = [noise * np.sqrt(dim / 100) * (2.5 + 1.5 * j / (dim - 1)) ** 2 for j in range(dim)]
    for k, columns in enumerate([a[:, 1:], a]):
        expected = normal(x, np.diag(np.square(sigma)) + columns @ columns.T)
        np.testing.assert_allclose(problem.log_evidence(x)[:, k], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("noise", [1.0, 0.15, 0.01])
def test_time_series_keeps_the_digits_of_log_k(noise: float) -> None:
    # The models differ by one column, so log K has a closed form that does not subtract two large numbers.
    problem = problems.time_series(100, noise)
    x = draws(problem, 500)
    t = np.linspace(0, np.pi / 2, 100)
    a = np.cos((np.arange(1, 100) - 0.5) * t[:, None])
    covariance = np.diag((noise * np.linspace(2.5, 4, 100) ** 2) ** 2) + a @ a.T
    weights = np.linalg.solve(covariance, 2 * t)
    power = 2 * t @ weights
    expected = 0.5 * (x @ weights) ** 2 / (1 + power) - 0.5 * np.log1p(power)
    np.testing.assert_allclose(problem.log_bayes_factor(x), expected, rtol=0, atol=1e-9)


def test_normal_problems_against_scipy() -> None:
    one = np.ones((12, 12))
    legendre = np.polynomial.legendre.legvander(np.linspace(-1, 1, 12), 4)
    runs = np.kron(np.eye(4), np.ones((3, 3)))
    cases = [
        (problems.mean_test(12, 0.7), [np.eye(12), np.eye(12) + 0.49 * one]),
        (problems.far_apart(12), [np.eye(12) + one, 9 * np.eye(12) + one]),
        (problems.indistinguishable(12), [np.eye(12) + one] * 2),
        (problems.bumps(12, 4, amplitude=2.0), [np.eye(12), np.eye(12) + 4 * runs]),
        (
            problems.polynomial_order(12, amplitude=0.5),
            [np.eye(12) + 0.25 * legendre[:, : k + 1] @ legendre[:, : k + 1].T for k in range(5)],
        ),
    ]
    for problem, covariances in cases:
        x = draws(problem)
        expected = np.stack([normal(x, c) for c in covariances], axis=1)
        np.testing.assert_allclose(
            problem.log_evidence(x), expected, rtol=1e-11, atol=1e-9, err_msg=problem.name
        )


def test_far_apart_against_scipy() -> None:
    x = draws(problems.far_apart(), 50)
    one = np.ones((200, 200))
    expected = normal(x, 9 * np.eye(200) + one) - normal(x, np.eye(200) + one)
    log_k = problems.far_apart().log_bayes_factor(x)
    np.testing.assert_allclose(log_k, expected, rtol=0, atol=1e-8)
    assert (log_k[:50] < -90).all()
    assert (log_k[50:] > 300).all()


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0.0), (1e9, 0.0), (1.0, 1e9)])
def test_units_leave_bayes_factors(scale: float, offset: float) -> None:
    plain, other = problems.mean_test(), problems.mean_test(scale=scale, offset=offset)
    x = draws(plain, 100)
    # A value near 1e9 is rounded to 1e-7.
    tolerance = 1e-4 if offset else 1e-9
    np.testing.assert_allclose(
        other.log_bayes_factor(offset + scale * x), plain.log_bayes_factor(x), rtol=0, atol=tolerance
    )
    shifted = plain.log_evidence(x) - 20 * np.log(scale)
    np.testing.assert_allclose(other.log_evidence(offset + scale * x), shifted, rtol=0, atol=tolerance)


def test_unknown_variance_against_multivariate_t() -> None:
    def student(x: Any, covariance: np.ndarray, shape: float, rate: float) -> Any:
        return stats.multivariate_t(
            np.zeros(len(covariance)), rate / shape * covariance, df=int(2 * shape)
        ).logpdf(x)

    problem = problems.t_test(7, 0.8, shape=2.5, rate=1.5)
    x, spread = draws(problem), np.eye(7) + 0.64 * np.ones((7, 7))
    expected = np.stack([student(x, c, 2.5, 1.5) for c in (np.eye(7), spread)], axis=1)
    np.testing.assert_allclose(problem.log_evidence(x), expected, rtol=0, atol=1e-9)

    problem = problems.variance_test(4)
    x = draws(problem)
    halves = sum(student(half, np.eye(4), 2.0, 2.0) for half in (x[:, :4], x[:, 4:]))
    expected = np.stack([student(x, np.eye(8), 2.0, 2.0), halves], axis=1)
    np.testing.assert_allclose(problem.log_evidence(x), expected, rtol=0, atol=1e-9)


def test_counts_and_positive_data_against_quadrature() -> None:
    cases = []
    problem = problems.overdispersion(6)
    for x in draws(problem, 2):
        poisson = log_quad(
            lambda r, x=x: np.sum(stats.poisson.logpmf(x, r)) + stats.gamma.logpdf(r, 4, scale=2.5), 0, 150
        )
        binomial = log_quad(
            lambda p, x=x: np.sum(stats.nbinom.logpmf(x, 5, p)) + stats.beta.logpdf(p, 5, 8), 0, 1
        )
        cases.append((problem, x, (poisson, binomial)))
    problem = problems.decades(6)
    for x in draws(problem, 2):
        # The integral is over u = log r, whose density is r · gamma(r).
        gamma = log_quad(
            lambda u, x=x: (
                np.sum(stats.gamma.logpdf(x, 1.5, scale=np.exp(-u))) + stats.gamma.logpdf(np.exp(u), 0.3) + u
            ),
            -60,
            8,
        )
        lognormal = log_quad(
            lambda m, x=x: np.sum(stats.lognorm.logpdf(x, 1.0, scale=np.exp(m))) + stats.norm.logpdf(m, 3, 4),
            -40,
            46,
        )
        cases.append((problem, x, (gamma, lognormal)))
    for problem, x, expected in cases:
        np.testing.assert_allclose(
            problem.log_evidence(x[None])[0], expected, rtol=0, atol=1e-7, err_msg=problem.name
        )


def test_location_problems_against_quadrature() -> None:
    def mixture(y: np.ndarray) -> np.ndarray:
        return np.logaddexp(stats.norm.logpdf(y, -1.5), stats.norm.logpdf(y, 1.5)) - np.log(2)

    def student(y: np.ndarray) -> Any:
        return stats.t.logpdf(y, 2)

    for problem, sigma, log_noise in (
        (problems.heavy_tails(6), 1.5, student),
        (problems.two_humps(6), np.sqrt(3.25), mixture),
    ):
        x = draws(problem, 2)
        expected = [
            log_quad(lambda m, r=r, f=log_noise: f(r - m).sum() + stats.norm.logpdf(m), -9, 9) for r in x
        ]
        np.testing.assert_allclose(problem.log_evidence(x)[:, 1], expected, rtol=0, atol=1e-8)
        covariance = sigma**2 * np.eye(6) + np.ones((6, 6))
        np.testing.assert_allclose(problem.log_evidence(x)[:, 0], normal(x, covariance), rtol=0, atol=1e-9)


def test_autocorrelation_against_quadrature() -> None:
    problem = problems.autocorrelation(6)
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    x = draws(problem, 1)
    expected = [log_quad(lambda r, v=v: normal(v, r**lag) - np.log(1.6), -0.8, 0.8) for v in x[:, :, 0]]
    np.testing.assert_allclose(problem.log_evidence(x)[:, 1], expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        problem.log_evidence(x)[:, 0], normal(x[:, :, 0], np.eye(6)), rtol=0, atol=1e-9
    )


def test_decay_or_trend_against_quadrature() -> None:
    problem = problems.decay_or_trend(8)
    t = np.linspace(0, 2, 8)

    def decay(rate: float, x: Any) -> float:
        shape = np.exp(-rate * t)
        return normal(x, 0.36 * np.eye(8) + 4 * np.outer(shape, shape)) - np.log(4.5)

    x = draws(problem, 1)
    expected = [log_quad(lambda r, v=v: decay(r, v), 0.5, 5) for v in x]
    np.testing.assert_allclose(problem.log_evidence(x)[:, 1], expected, rtol=0, atol=1e-8)
    powers = np.stack([t**0, t, t**2])
    trend = normal(x, 0.36 * np.eye(8) + 0.25 * powers.T @ powers)
    np.testing.assert_allclose(problem.log_evidence(x)[:, 0], trend, rtol=0, atol=1e-9)


def test_random_field_against_its_covariance() -> None:
    side = 4
    problem = problems.random_field(side, lengths=(0.5, 0.9), noise=0.7)
    x = draws(problem, 1)
    for k, length in enumerate((0.5, 0.9)):
        frequency = np.array([0, 1, 2, 1])
        power = np.exp(-((2 * np.pi * length / side) ** 2) * np.add.outer(frequency**2, frequency**2))
        at_lag = np.fft.ifft2(power / power.mean()).real
        i, j = (index.ravel() for index in np.indices((side, side)))
        field = at_lag[np.subtract.outer(i, i) % side, np.subtract.outer(j, j) % side]

        def log_f(u: float, image: np.ndarray, field: np.ndarray = field) -> float:
            return normal(image.ravel(), np.exp(u) * field + 0.49 * np.eye(16)) + stats.norm.logpdf(u, 0, 0.5)

        expected = [log_quad(lambda u, v=v, f=log_f: f(u, v), -4, 4) for v in x]
        np.testing.assert_allclose(problem.log_evidence(x)[:, k], expected, rtol=0, atol=1e-8)


def test_correlated_cloud_against_scipy() -> None:
    problem = problems.correlated_cloud(5)
    x, _ = problem.models[1].draw(np.random.default_rng(2), 20)
    for i in range(20):
        points = x["x"][i][x["mask"][i]].astype(float)
        m = len(points)
        for k, rho in enumerate((0.0, 0.6)):
            covariance = np.kron(np.eye(m), [[1, rho], [rho, 1]]) + np.kron(np.ones((m, m)), 4 * np.eye(2))
            expected = normal(points.ravel(), covariance) - np.log(4)
            np.testing.assert_allclose(problem.log_evidence(x)[i, k], expected, rtol=0, atol=1e-9)


def test_point_pattern_against_quadrature() -> None:
    problem = problems.point_pattern(8)
    x, _ = problem.models[1].draw(np.random.default_rng(2), 6)
    for i in range(6):
        u = x["x"][i, x["mask"][i], 0].astype(float)
        number = [stats.betabinom.logpmf(len(u), 8, a, b) for a, b in ((2, 2), (3, 2))]
        slope = log_quad(lambda g, u=u: np.log1p(g * (2 * u - 1)).sum() - np.log(2), -1, 1)
        expected = (number[0], number[1] + slope)
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-8)


def test_rastrigin_against_quadrature() -> None:
    problem = problems.rastrigin(1)

    def log_prior(theta: Any) -> np.ndarray:
        return -(theta**2) / 4 + 10 * (np.cos(2 * np.pi * theta) - 1)

    theta = np.linspace(-14, 14, 28_001)
    norm = np.log(np.exp(log_prior(theta)).sum() * 0.001)
    for x in (*draws(problem)[:, 0], 0.0, 0.5, 5.5):
        terms = np.exp(log_prior(theta) + stats.norm.logpdf(x, theta, 0.25)) * 0.001
        expected = (stats.norm.logpdf(x, 0, np.sqrt(2 + 1 / 16)), np.log(terms.sum()) - norm)
        np.testing.assert_allclose(problem.log_evidence(np.array([[x]]))[0], expected, rtol=0, atol=1e-9)
    # The components are independent, so their log evidences add up.
    x = draws(problems.rastrigin(3))
    parts = sum(problem.log_evidence(x[:, [i]]) for i in range(3))
    np.testing.assert_allclose(problems.rastrigin(3).log_evidence(x), parts, rtol=0, atol=1e-9)


def test_rastrigin_draws_follow_their_density() -> None:
    theta: Any = problems.rastrigin(1).models[1].draw_parameters(np.random.default_rng(4), 20_000)
    grid = np.linspace(-14, 14, 28_001)
    density = np.exp(-(grid**2) / 4 + 10 * (np.cos(2 * np.pi * grid) - 1))
    cumulative = np.cumsum(density) / density.sum()
    assert stats.kstest(theta[:, 0], lambda t: np.interp(t, grid, cumulative)).pvalue > 1e-3
    assert stats.kstest(theta[:, 0], stats.norm(0, np.sqrt(2)).cdf).pvalue < 1e-6


def test_discrete_problems_against_draws_of_the_prior() -> None:
    def table(theta: Any, x: Any) -> Any:
        return stats.multinomial.logpmf(x.ravel(), x.sum(), theta.reshape(len(theta), -1))

    def sequence(theta: Any, x: Any) -> Any:
        ones = x[:, 0] == 1
        if isinstance(theta, dict):
            rate = np.where(np.arange(len(x)) < theta["c"][:, None], theta["p"][:, None], theta["q"][:, None])
        else:
            rate = np.repeat(theta[:, None], len(x), axis=1)
        return np.log(np.where(ones, rate, 1 - rate)).sum(axis=1)

    def graph(theta: Any, x: Any) -> np.ndarray:
        total = np.zeros(len(theta))
        for i, j in itertools.combinations(range(len(x)), 2):
            p = theta[:, 0 if (i < len(x) // 2) == (j < len(x) // 2) else 1]
            total += np.log(p if x[i, j] else 1 - p)
        return total

    for problem, log_likelihood in (
        (problems.contingency_table(2, 3, total=10), table),
        (problems.change_point(8), sequence),
        (problems.communities(6), graph),
    ):
        for x in draws(problem, 2):
            assert agrees_with_prior_draws(problem, x, log_likelihood)


# Evidences are probabilities, so they sum or integrate to one


def test_discrete_evidences_sum_to_one() -> None:
    sequences = np.array(list(itertools.product([0, 1], repeat=6)))[:, :, None]
    links = np.array(list(itertools.product([0, 1], repeat=6)))
    graphs = np.zeros((64, 4, 4))
    first, second = np.triu_indices(4, 1)
    graphs[:, first, second] = graphs[:, second, first] = links
    tables = np.array([t for t in itertools.product(range(6), repeat=4) if sum(t) == 5]).reshape(-1, 2, 2)
    for problem, every in (
        (problems.change_point(6), sequences),
        (problems.communities(4), graphs),
        (problems.contingency_table(2, 2, total=5), tables),
    ):
        np.testing.assert_allclose(np.exp(problem.log_evidence(every)).sum(axis=0), 1, rtol=1e-12)
    # Beyond 20,000 the probability falls with at least the fifth power of the count and can be left out.
    counts = np.arange(20_000)[:, None]
    total = np.exp(problems.overdispersion(1).log_evidence(counts)).sum(axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("problem", "low", "high"),
    [
        (problems.lifetime(), 0, np.inf),
        (problems.rastrigin(1), -np.inf, np.inf),
        (problems.mean_test(1, scale=2.0, offset=-1.0), -np.inf, np.inf),
        (problems.t_test(1), -np.inf, np.inf),
        (problems.heavy_tails(1), -np.inf, np.inf),
        (problems.two_humps(1), -np.inf, np.inf),
        (problems.polynomial_order(1, 3), -np.inf, np.inf),
        (problems.far_apart(1), -np.inf, np.inf),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_densities_of_one_number_integrate_to_one(problem: Problem, low: float, high: float) -> None:
    for k in range(len(problem.models)):
        integral, _ = quad(
            lambda x, k=k: np.exp(problem.log_evidence(np.array([[x]]))[0, k]),
            low,
            high,
            epsabs=1e-9,
            limit=500,
        )
        assert abs(integral - 1) < 1e-7


def test_decades_integrates_to_one() -> None:
    # The integral is over u = log x, because the densities are smooth functions of u. The density of the
    # gamma model falls like exp(−0.3 u).
    problem = problems.decades(1)
    for k in range(2):
        integral, _ = quad(
            lambda u, k=k: np.exp(u + problem.log_evidence(np.exp(np.array([[u]])))[0, k]),
            -60,
            90,
            points=[0, 3],
            limit=500,
        )
        assert abs(integral - 1) < 1e-7
