"""The list of all problems."""

from collections.abc import Callable
from functools import partial

from evidencenet.problems.counts import contingency_table, overdispersion
from evidencenet.problems.gaussian import mean_test, t_test, variance_test
from evidencenet.problems.graphs import communities
from evidencenet.problems.images import random_field
from evidencenet.problems.limits import far_apart, indistinguishable
from evidencenet.problems.linear import bumps, decay_or_trend, polynomial_order
from evidencenet.problems.location import heavy_tails, two_humps
from evidencenet.problems.positive import decades, lifetime
from evidencenet.problems.problem import Problem
from evidencenet.problems.rastrigin import rastrigin
from evidencenet.problems.sequences import autocorrelation, change_point
from evidencenet.problems.sets import correlated_cloud, point_pattern
from evidencenet.problems.time_series import time_series


def zoo() -> dict[str, Callable[[], Problem]]:
    """Return every worked problem by name, each a function without arguments.

    Returns
    -------
    problems
        Name → function that returns the `Problem`. A name with a suffix is the problem of the name before it
        with other arguments, such as ``time_series_strong``.

    Examples
    --------
    >>> zoo()["rastrigin"]()
    Problem('rastrigin', models=('one mode', 'many modes'), augment=yes)
    """
    return {
        "time_series": time_series,
        "time_series_strong": partial(time_series, noise=0.15),
        "mean_test": mean_test,
        "mean_test_tiny": partial(mean_test, scale=1e-9),
        "mean_test_huge": partial(mean_test, scale=1e9),
        "mean_test_offset": partial(mean_test, offset=1e9),
        "t_test": t_test,
        "variance_test": variance_test,
        "polynomial_order": polynomial_order,
        "bumps": bumps,
        "decay_or_trend": decay_or_trend,
        "indistinguishable": indistinguishable,
        "far_apart": far_apart,
        "overdispersion": overdispersion,
        "contingency_table": contingency_table,
        "lifetime": lifetime,
        "decades": decades,
        "heavy_tails": heavy_tails,
        "two_humps": two_humps,
        "change_point": change_point,
        "autocorrelation": autocorrelation,
        "correlated_cloud": correlated_cloud,
        "point_pattern": point_pattern,
        "random_field": random_field,
        "communities": communities,
        "rastrigin": rastrigin,
        "rastrigin_10": partial(rastrigin, dim=10),
    }
