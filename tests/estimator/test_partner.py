"""A partner: a network of another kind whose log K is averaged with that of the ensemble."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet import losses, problems
from evidencenet.estimator.learn_error import _joined_errors
from evidencenet.estimator.partner import Partner

N = 40_000


def noisy(own: float, other: float, shared: float = 0.0) -> tuple[Any, Any, Any, np.ndarray]:
    """Held-out draws with exact log K, and two networks with errors of these sizes, partly shared."""
    rng = np.random.default_rng(1)
    exact = rng.normal(0, 1.5, N)
    label = (rng.random(N) < 1 / (1 + np.exp(-exact))).astype(int)
    both = rng.normal(0, 1, N) * shared
    errors = [both + size * rng.normal(0, 1, N) for size in (own, other)]
    odds = [np.stack([np.zeros(N), exact + error], axis=1)[None] for error in errors]
    draws = SimpleNamespace(held_out_rows=np.arange(N), model=label, weight=np.ones(N, np.float32))
    plan = SimpleNamespace(loss=losses.Logistic(), network=None)
    inputs = SimpleNamespace(draws=draws, plan=plan, scaling=None, baseline=None)
    one, two = (SimpleNamespace(log_odds=o, networks=None, states=None, gain=np.ones(1)) for o in odds)
    return inputs, one, SimpleNamespace(inputs=inputs, trained=two), exact


@pytest.mark.parametrize(("own", "other"), [(0.4, 0.4), (0.4, 0.6)])
def test_the_weight_is_that_of_independent_errors(own: float, other: float) -> None:
    inputs, trained, rival, exact = noisy(own, other)
    partner = Partner.fit(inputs, trained, rival)
    assert partner is not None
    wanted = own**2 / (own**2 + other**2)
    # The score of N draws is flat around its minimum: its second derivative is N E[p (1 − p) d²], d the
    # difference of the two, so the weight is known to the root of one over that.
    p = 1 / (1 + np.exp(-exact))
    sigma = 1 / np.sqrt(N * np.mean(p * (1 - p)) * (own**2 + other**2))
    assert abs(partner.weight - wanted) < 4 * sigma
    joined = partner.joined(trained.log_odds, rival.trained.log_odds[0])[0, :, 1]
    before, after = (np.mean(np.square(odds - exact)) for odds in (trained.log_odds[0, :, 1], joined))
    assert after < 1.05 * wanted * other**2 < before


def test_a_rival_that_adds_nothing_is_not_a_partner() -> None:
    # Its errors are those of the ensemble and more.
    inputs, trained, rival, _ = noisy(0.0, 0.5, shared=0.3)
    assert Partner.fit(inputs, trained, rival) is None
    assert Partner.fit(inputs, trained, None) is None
    # An opinion has no network, and a loss of the user's own for two classes has no log-odds to add.
    assert Partner.fit(inputs, trained, SimpleNamespace(inputs=None, trained=None)) is None  # type: ignore[arg-type]


def test_errors_shrink_by_what_the_partner_changes() -> None:
    inputs, trained, rival, exact = noisy(0.4, 0.6)
    partner = Partner.fit(inputs, trained, rival)
    assert partner is not None
    own = trained.log_odds[0]
    change = partner.joined(trained.log_odds, rival.trained.log_odds[0])[0] - own
    squared = np.square(own - np.stack([np.zeros(N), exact], axis=1))
    left = _joined_errors(squared, own, change)
    true = np.square(own + change - np.stack([np.zeros(N), exact], axis=1))
    assert np.mean(left) == pytest.approx(np.mean(true), rel=0.1)
    assert np.mean(squared) != pytest.approx(np.mean(true), rel=0.1)


def test_log_k_is_the_weighted_mean_and_survives_a_file(tmp_path: Any) -> None:
    problem = problems.mean_test()
    sims = en.simulate(problem.models, 4_000, seed=1, progress=False)
    fast = en.Recipe(epochs=2)
    nets = [
        en.train(sims, network=network, recipe=fast, members=2, seed=2, learn_error=False, progress=False)
        for network in (en.networks.DeepSet(), en.networks.Squares())
    ]
    first, second = nets
    names = ("scaling", "baseline", "loss", "architecture", "networks", "states", "gain")
    net = replace(first, partner=Partner(0.3, **{name: getattr(second, name) for name in names}))
    x = en.simulate(problem.models, 500, seed=3, progress=False).x
    alone, other = (each.log_bayes_factor(x) for each in nets)
    np.testing.assert_allclose(net.log_bayes_factor(x), 0.7 * alone + 0.3 * other, atol=1e-9)
    assert np.abs(alone - other).max() > 0.01
    np.testing.assert_allclose(net.members(x), 0.7 * first.members(x) + 0.3 * other, atol=1e-9)
    net.save(tmp_path / "net.evnet")
    loaded = en.load(tmp_path / "net.evnet")
    assert np.array_equal(loaded.log_bayes_factor(x), net.log_bayes_factor(x))
    assert loaded.partner is not None
    assert loaded.partner.weight == 0.3
    assert "averaged with" in net._repr_html_()
    assert "averaged with Squares" in repr(net)
    assert "(weight 0.30)" in repr(net)
    assert "averaged" not in repr(first)
