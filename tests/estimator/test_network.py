"""What a trained network answers, and what it refuses."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import expit
from scipy.stats import multivariate_normal

import evidencenet as en
from conftest import Case, draws, rms
from evidencenet.estimator import evaluation


def test_shapes(small: Case) -> None:
    x = np.asarray(small.fresh.x)
    net = small.net
    assert net.log_bayes_factor(x).shape == (2_000,)
    assert net.members(x).shape == (2, 2_000)
    assert net.error(x).shape == (2_000,)
    assert net.probabilities(x).shape == (2_000, 2)
    assert net.log_bayes_factor(x[0]).shape == (1,)
    assert net.log_bayes_factor(x[0].tolist()).shape == (1,)
    assert net.log_bayes_factor(x).dtype == np.float64


def test_no_observations(small: Case) -> None:
    assert small.net.log_bayes_factor(np.zeros((0, 5))).shape == (0,)
    assert small.net.members(np.zeros((0, 5))).shape == (2, 0)


def test_an_observation_does_not_depend_on_the_others(small: Case) -> None:
    x = np.asarray(small.fresh.x)
    together = small.net.log_bayes_factor(x)
    # Batches of other sizes are compiled anew, and may round differently.
    for rows in (slice(0, 1), slice(7, 71), slice(100, 165), slice(1_000, 2_000)):
        np.testing.assert_allclose(small.net.log_bayes_factor(x[rows]), together[rows], atol=1e-5)
    many = np.concatenate([x] * 10)
    np.testing.assert_allclose(small.net.log_bayes_factor(many).reshape(10, -1), [together] * 10, atol=1e-5)


def test_mean_and_error_over_members(small: Case) -> None:
    members = small.net.members(small.fresh.x)
    np.testing.assert_array_equal(small.net.log_bayes_factor(small.fresh.x), members.mean(axis=0))
    # Of two members, the jackknife error of the mean is half their difference.
    jackknife = np.abs(members[0] - members[1]) / 2
    np.testing.assert_allclose(small.net.jackknife(small.fresh.x), jackknife, rtol=1e-9)


def test_the_error_is_what_was_learned_of_it(small: Case, three: Case) -> None:
    for case, pairs in ((small, [(1, 0)]), (three, [(1, 0), (2, 0), (2, 1)])):
        for model, against in pairs:
            log_k, jackknife, error = (
                ask(case.fresh.x, model=model, against=against)
                for ask in (case.net.log_bayes_factor, case.net.jackknife, case.net.error)
            )
            assert case.net.errors is not None
            # By no luck is it less than the members' own scatter.
            members = case.net.members(case.fresh.x, model=model, against=against)
            scatter = members.std(axis=0, ddof=1) / np.sqrt(len(members))
            # Data are as rare as they are for the model that finds them less so.
            p = case.net.novelty_p_value(case.fresh.x)[:, [model, against]].max(axis=1)
            learned = np.maximum(case.net.errors(log_k, jackknife, p), scatter)
            np.testing.assert_allclose(error, learned, rtol=1e-9)
            assert np.all(error > 0)
            assert np.all(np.isfinite(error))
            # Either way round it is the same number, up to its sign.
            turned = case.net.error(case.fresh.x, model=against, against=model)
            np.testing.assert_allclose(turned, error, rtol=1e-9)
    np.testing.assert_array_equal(three.net.error(three.fresh.x, model=2, against=2), 0)


def test_the_answer_holds_the_same_errors(three: Case) -> None:
    x = np.asarray(three.fresh.x)
    for one in x[:5]:
        answer = three.net.compare(one)
        for k in (1, 2):
            assert answer.pair(k, 0).error == pytest.approx(three.net.error(one, model=k)[0], rel=1e-9)
        lead = answer.lead
        error = three.net.error(one, model=lead.model, against=lead.against)[0]
        assert lead.error == pytest.approx(error, rel=1e-9)


def test_without_what_was_learned_there_is_the_jackknife(small: Case) -> None:
    old = replace(small.net, errors=None)
    np.testing.assert_array_equal(old.error(small.fresh.x), small.net.jackknife(small.fresh.x))
    assert np.median(small.net.error(small.fresh.x)) > 2 * np.median(old.error(small.fresh.x))


def test_a_single_member_has_an_error(small: Case) -> None:
    recipe = en.Recipe(epochs=1)
    net = en.train(small.sims, members=1, recipe=recipe, progress=False)
    assert np.all(np.isnan(net.jackknife(small.fresh.x)))
    error = net.error(small.fresh.x)
    assert np.all(np.isfinite(error))
    exact = small.problem.log_bayes_factor(small.fresh.x)
    # After one epoch log K is off by a tenth or more, and within the range the error says so.
    found = net.log_bayes_factor(small.fresh.x)
    inside = net.ranges[0].contains(found)
    assert rms((found - exact)[inside]) > 0.1
    assert 0.5 < rms((found - exact)[inside]) / rms(error[inside]) < 2
    one = np.asarray(small.fresh.x)[0]
    assert net.compare(one).error == pytest.approx(error[0], rel=1e-4)
    # Files of old have nothing but the jackknife.
    answer = replace(net, errors=None).compare(one)
    assert np.isnan(answer.error)
    assert "single member" in str(answer)


def test_probabilities_are_bayes_theorem(small: Case) -> None:
    x = small.fresh.x
    log_k = small.net.log_bayes_factor(x)
    np.testing.assert_allclose(small.net.probabilities(x)[:, 1], expit(log_k), rtol=1e-9)
    for prior in ([0.5, 0.5], [0.2, 0.8], [1, 9], [30, 10]):
        p = small.net.probabilities(x, prior=prior)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        odds = np.log(prior[1] / prior[0])
        np.testing.assert_allclose(p[:, 1], expit(log_k + odds), rtol=1e-9)
    np.testing.assert_array_equal(small.net.probabilities(x, prior=[0, 1])[:, 1], 1)


def test_the_prior_does_not_change_log_k(small: Case) -> None:
    x = np.asarray(small.fresh.x)[0]
    answers = [small.net.compare(x, prior=prior) for prior in (None, [0.1, 0.9])]
    assert answers[0].log_k == answers[1].log_k
    assert answers[0].probabilities[1] < answers[1].probabilities[1]


def test_three_models_are_antisymmetric_and_transitive(three: Case) -> None:
    x, net = three.fresh.x, three.net
    names = three.net.names

    def log_k(a: int, b: int) -> np.ndarray:
        return net.log_bayes_factor(x, model=a, against=b)

    # Differences of numbers of size 10: rounding of 1e-15.
    for a, b, c in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        np.testing.assert_allclose(log_k(a, b), -log_k(b, a), atol=1e-12)
        np.testing.assert_allclose(log_k(a, b) + log_k(b, c), log_k(a, c), atol=1e-12)
    np.testing.assert_array_equal(log_k(1, 1), 0)
    np.testing.assert_array_equal(net.log_bayes_factor(x, model=names[2], against=names[1]), log_k(2, 1))
    p = net.probabilities(x, prior=[1, 2, 5])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(p[:, 2] / p[:, 1]), log_k(2, 1) + np.log(5 / 2), atol=1e-9)


def test_the_order_of_keys_does_not_matter(cloud: Case) -> None:
    x = cloud.fresh.x
    assert isinstance(x, dict)
    swapped = {key: x[key] for key in reversed(x)}
    assert list(swapped) != list(x)
    np.testing.assert_array_equal(cloud.net.log_bayes_factor(swapped), cloud.net.log_bayes_factor(x))
    first, second = ({key: value[0] for key, value in data.items()} for data in (x, swapped))
    np.testing.assert_array_equal(cloud.net.compare(first).novelty, cloud.net.compare(second).novelty)
    np.testing.assert_array_equal(cloud.net.error(first), cloud.net.error(second))


def test_masks_are_used(cloud: Case) -> None:
    x = cloud.fresh.x
    assert isinstance(x, dict)
    other = {**x, "mask": ~x["mask"]}
    assert np.mean(cloud.net.log_bayes_factor(other) != cloud.net.log_bayes_factor(x)) > 0.9


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(small: Case, bad: float) -> None:
    x = np.zeros((4, 5))
    x[2, 1] = bad
    for ask in (small.net.log_bayes_factor, small.net.members, small.net.error, small.net.probabilities):
        with pytest.raises(ValueError, match=r"x holds NaN or infinity in 1 of 4 observations, .*number 2"):
            ask(x)
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 1 observations"):
        small.net.compare(x[2])


@pytest.mark.parametrize("size", [1e38, 1e300])
def test_numbers_that_overflow(small: Case, size: float) -> None:
    # Finite, but beyond what a network can be given: an error, or at least a number.
    try:
        log_k = small.net.log_bayes_factor(np.full((1, 5), size))
    except ValueError as error:
        assert "too large" in str(error) or "far" in str(error)  # noqa: PT017
    else:
        assert np.all(np.isfinite(log_k))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((3, 4)), ValueError, r"x has shape \(3, 4\).*several of shape \(n, 5\)"),
        (
            np.zeros((3, 5, 1)),
            ValueError,
            r"x has shape \(3, 5, 1\).*one observation of shape \(5,\)",
        ),
        (np.zeros(4), ValueError, r"x has shape \(4,\).*one observation of shape \(5,\)"),
        ({"x": np.zeros((3, 5))}, ValueError, r"x is a dict of 'x': \(5,\).*trained on an array"),
        (np.array([[None] * 5]), TypeError, "x has dtype object; wanted numbers"),
        (np.array([["1"] * 5]), TypeError, "x holds text, such as '1'; wanted numbers"),
        (np.array(["1"] * 5), TypeError, "x holds text, such as '1'; wanted numbers"),
        (np.zeros((1, 5), complex), TypeError, "complex128.*real and imaginary parts"),
        ([[1.0] * 5, [1.0]], ValueError, "rows that differ in shape"),
        (None, TypeError, "x must be an array .*got None"),
        (0.3, TypeError, "x must be an array .*got a float"),
        (np.ma.masked_invalid(np.zeros((1, 5))), TypeError, "masked array would lose its mask"),
        (np.ma.masked_invalid(np.zeros(5)), TypeError, "masked array would lose its mask"),
    ],
    ids=[
        "width",
        "axes",
        "length",
        "dict",
        "object",
        "strings",
        "one of strings",
        "complex",
        "ragged",
        "None",
        "scalar",
        "masked",
        "one masked",
    ],
)
def test_bad_observations(small: Case, x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small.net.log_bayes_factor(x)


def test_bad_observations_in_a_dict(cloud: Case) -> None:
    x = cloud.fresh.x
    assert isinstance(x, dict)
    wanted = r"this network was trained on a dict of 'x': \(5, 2\) numbers, 'mask': \(5,\) booleans"
    with pytest.raises(ValueError, match=r"x is a dict of 'x': \(5, 2\) numbers per draw; " + wanted):
        cloud.net.log_bayes_factor({"x": x["x"]})
    with pytest.raises(ValueError, match=r"'mask': \(5,\) numbers per draw; " + wanted):
        cloud.net.log_bayes_factor({**x, "mask": x["mask"].astype(float)})
    # Without their mask, padded draws look like data that end with zeros.
    with pytest.raises(ValueError, match="ends with 0, as draws do that were padded"):
        cloud.net.log_bayes_factor(x["x"])
    with pytest.raises(ValueError, match="differ in length"):
        cloud.net.log_bayes_factor({**x, "mask": x["mask"][:3]})
    broken = {**x, "x": np.where(np.arange(1_000)[:, None, None] == 5, np.nan, x["x"])}
    with pytest.raises(ValueError, match=r"x\['x'\] holds NaN or infinity in 1 of 1000 .*number 5"):
        cloud.net.log_bayes_factor(broken)


@pytest.mark.parametrize(
    "prior",
    [[0.5], [0.2, 0.3, 0.5], [-0.5, 1.5], [np.nan, 1], [np.inf, 1], [0, 0], 0.5, [[0.5, 0.5]]],
    ids=str,
)
def test_bad_priors(small: Case, prior: Any) -> None:
    for ask in (small.net.probabilities, small.net.compare):
        with pytest.raises(
            ValueError, match="wanted one probability, 0 or more, for each of zero mean, free mean"
        ):
            ask(np.zeros(5), prior=prior)


def test_unknown_models(small: Case) -> None:
    with pytest.raises(
        ValueError, match="there is no model 'trend'; the models are 'zero mean', 'free mean'"
    ):
        small.net.log_bayes_factor(np.zeros(5), model="trend")
    with pytest.raises(ValueError, match="there is no model 2; the models are 0 to 1"):
        small.net.log_bayes_factor(np.zeros(5), against=2)
    with pytest.raises(TypeError, match=r"by its number or name, not by 1\.0"):
        small.net.members(np.zeros(5), model=1.0)  # type: ignore[arg-type]


def test_text_keeps_the_sign_convention(small: Case, three: Case) -> None:
    text = repr(small.net)
    assert "2 members" in text
    assert "(5,) numbers" in text
    assert "zero mean against free mean" not in text
    for name in three.problem.models:
        assert name.name in repr(three.net)


def test_it_cannot_be_changed(small: Case) -> None:
    with pytest.raises(AttributeError):
        small.net.names = ("a", "b")  # type: ignore[misc]


# --- Several observations --------------------------------------------------------------------------------


SIZE, SETS = 5, 3
ONE, ALL = en.problems.mean_test(size=SIZE), en.problems.mean_test(size=SIZE * SETS)
OPTIONS: dict[str, Any] = {
    "members": 2,
    "recipe": en.Recipe(epochs=4),
    "baseline": True,
    "seed": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def level() -> en.EvidenceNetwork:
    return en.train(draws(ONE, 20_000, seed=1), **OPTIONS)


def test_the_sum_is_right_for_parameters_of_their_own(level: en.EvidenceNetwork) -> None:
    rng = np.random.default_rng(3)
    means = rng.standard_normal((500, SETS, 1))
    x = means + rng.standard_normal((500, SETS, SIZE))
    # All three observations as one normal law, with a block of the covariance for each mean.
    alternative = block_diag(*[np.eye(SIZE) + np.ones((SIZE, SIZE))] * SETS)
    flat = x.reshape(500, -1)
    exact = multivariate_normal(cov=alternative).logpdf(flat) - multivariate_normal(
        cov=np.eye(SIZE * SETS)
    ).logpdf(flat)
    found = [level.combine(list(one), independent=True) for one in x]
    values, errors = (np.array([getattr(e, part) for e in found]) for part in ("value", "error"))
    assert rms(values - exact) < 2 * rms(errors)
    # As one mean for all, the same data have another log K.
    assert rms(values - ALL.log_bayes_factor(flat)) > 5 * rms(errors)
    np.testing.assert_allclose(errors[0], level.error(x[0]).sum())
    np.testing.assert_allclose(values[0], level.log_bayes_factor(x[0]).sum())
    backwards = level.combine(x[0], independent=True, model=0, against=1)
    assert float(backwards) == pytest.approx(-values[0])


def test_the_sum_is_wrong_for_shared_parameters_and_one_x_is_right(level: en.EvidenceNetwork) -> None:
    fresh: Any = draws(ALL, 2_000, seed=4).x
    exact = ALL.log_bayes_factor(fresh)
    parts = fresh.reshape(-1, SIZE)
    # Even exact log K of the parts do not add up to that of the whole.
    added = ONE.log_bayes_factor(parts).reshape(-1, SETS).sum(axis=1)
    together = en.train(draws(ALL, 20_000, seed=1), **OPTIONS)
    off = rms(together.log_bayes_factor(fresh) - exact)
    assert off < 2 * rms(together.error(fresh))
    assert rms(added - exact) > 10 * off


def test_it_refuses_unless_told(level: en.EvidenceNetwork) -> None:
    x = np.zeros((3, SIZE))
    unsure: Any = "yes"
    for options in ({}, {"independent": False}, {"independent": unsure}):
        with pytest.raises(
            ValueError, match=r"not the sum .* share parameters: simulate them together as one"
        ):
            level.combine(x, **options)
    with pytest.raises(ValueError, match="this network wants one observation"):
        level.combine(np.zeros((3, SIZE + 1)), independent=True)


def test_lists_of_dicts(cloud: Case) -> None:
    x: Any = cloud.fresh.x
    single = [{key: array[i] for key, array in x.items()} for i in range(4)]
    batch = {key: array[:4] for key, array in x.items()}
    together, apart = (cloud.net.combine(given, independent=True) for given in (batch, single))
    assert float(together) == float(apart)
    with pytest.raises(ValueError, match="differ in their keys"):
        cloud.net.combine([single[0], {"x": single[1]["x"]}], independent=True)


def test_more_than_two_models_are_asked_for_by_name(three: Case) -> None:
    x, names = np.asarray(three.fresh.x)[:3], three.net.names
    for ask in (three.net.log_bayes_factor, three.net.error, three.net.members, three.net.in_range):
        with pytest.raises(ValueError, match=r"compares 3 models: order 0, order 1, .*model='order 1'"):
            ask(x)
        np.testing.assert_array_equal(ask(x, model=2), ask(x, model=names[2], against=names[0]))


def test_a_prior_by_name(three: Case) -> None:
    x, names = np.asarray(three.fresh.x)[:3], three.net.names
    by_name = dict(zip(reversed(names), (0.5, 0.3, 0.2), strict=True))
    wanted = three.net.probabilities(x, prior=[0.2, 0.3, 0.5])
    np.testing.assert_array_equal(three.net.probabilities(x, prior=by_name), wanted)
    with pytest.raises(ValueError, match=r"prior has the models 'order 0'; this network compares"):
        three.net.compare(x[0], prior={"order 0": 1.0})


def test_what_was_given_is_said(small: Case) -> None:
    for x, shape in ((np.zeros(4), r"\(4,\)"), (np.zeros((2, 4)), r"\(2, 4\)")):
        with pytest.raises(ValueError, match=rf"x has shape {shape}; this network wants one observation"):
            small.net.compare(x)
    with pytest.raises(TypeError, match=r"made by train\(sims\) or load\(path\), not by hand"):
        en.EvidenceNetwork()  # type: ignore[call-arg]


def test_errors_of_many_observations_are_computed_in_blocks(
    small: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.asarray(small.fresh.x)
    whole = [ask(x) for ask in (small.net.error, small.net.log_bayes_factor, small.net.in_range)]
    sizes: list[int] = []
    rarity = evaluation.Evaluation.rarity.func  # type: ignore[attr-defined]

    def counted(block: evaluation.Evaluation) -> np.ndarray:
        sizes.append(block.n)
        return np.asarray(rarity(block))

    monkeypatch.setattr(evaluation, "_ROWS", 900)
    monkeypatch.setattr(evaluation.Evaluation, "rarity", property(counted))
    parts = [ask(x) for ask in (small.net.error, small.net.log_bayes_factor, small.net.in_range)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert max(sizes) == 900
    assert {900, 200} <= set(sizes)


def test_a_network_can_be_pickled(small: Case) -> None:
    back = pickle.loads(pickle.dumps(small.net))
    np.testing.assert_array_equal(back.members(small.fresh.x), small.net.members(small.fresh.x))


def test_columns_are_known_by_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rng, names = np.random.default_rng(1), ["a", "b", "c"]
    label = np.arange(4_000) % 2
    x = rng.normal(size=(4_000, 3)) + label[:, None] * [0, 1, -1]
    sims = en.Simulations(pandas.DataFrame(x, columns=names), label)
    net = en.train(sims, members=1, recipe=en.Recipe(epochs=2), learn_error=False, progress=False)
    assert net.columns == ("a", "b", "c")
    net.save(tmp_path / "net")
    one = pandas.DataFrame([[0.3, 1.0, -1.0]], columns=names)
    wanted = net.log_bayes_factor(one.to_numpy())
    for asked in (net, en.load(tmp_path / "net")):
        with pytest.warns(en.EvidenceWarning):
            np.testing.assert_array_equal(asked.log_bayes_factor(one[["c", "a", "b"]]), wanted)
    # By position it would be another answer.
    assert abs(net.log_bayes_factor(one[["c", "a", "b"]].to_numpy())[0] - wanted[0]) > 0.5
    with pytest.raises(ValueError, match="d"):
        net.compare(one.rename(columns={"c": "d"}))
