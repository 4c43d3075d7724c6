"""The list of all problems."""

from collections.abc import Callable
from functools import partial

from evidencenet.problems.angles import headings
from evidencenet.problems.channels import coupled_channels
from evidencenet.problems.counts import contingency_table, overdispersion
from evidencenet.problems.events import aftershocks
from evidencenet.problems.gaussian import mean_test, t_test, variance_test
from evidencenet.problems.graphs import communities, grooming
from evidencenet.problems.hierarchical import meta_analysis, subjects
from evidencenet.problems.images import drift, faint_source, random_field
from evidencenet.problems.irregular import dip, light_curve
from evidencenet.problems.letters import markov_chain
from evidencenet.problems.limits import far_apart, indistinguishable
from evidencenet.problems.linear import (
    bumps,
    decay_or_trend,
    moderation,
    oscillation,
    polynomial_order,
    spectral_line,
    templates,
)
from evidencenet.problems.location import heavy_tails, two_humps
from evidencenet.problems.mixed import same_source
from evidencenet.problems.positive import decades, lifetime, reaction_times
from evidencenet.problems.problem import Problem
from evidencenet.problems.rankings import judges
from evidencenet.problems.rastrigin import rastrigin
from evidencenet.problems.sequences import ar_or_ma, autocorrelation, change_point, chirp, regimes
from evidencenet.problems.sets import correlated_cloud, marked_points, point_pattern
from evidencenet.problems.survival import censored_times
from evidencenet.problems.tables import questionnaire
from evidencenet.problems.time_series import time_series
from evidencenet.problems.volumes import stretched_field


def zoo() -> dict[str, Callable[[], Problem]]:
    """Return all worked problems by name, each as a function without arguments.

    A problem does not fix the number of draws. It is given where the problem is used:
    ``simulate(problem.models, 2_000)`` in Python, ``evidencenet problems NAME --n 2000`` on the command line,
    and ``--draws 2000`` in the benchmarks.

    Returns
    -------
    problems
        Name → function that returns the `Problem`. Some functions appear a second time with other arguments,
        under a name with a suffix, such as ``time_series_strong``.

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
        "spectral_line": spectral_line,
        "templates": templates,
        "oscillation": oscillation,
        "reaction_times": reaction_times,
        "censored_times": censored_times,
        "headings": headings,
        "markov_chain": markov_chain,
        "ar_or_ma": ar_or_ma,
        "coupled_channels": coupled_channels,
        "light_curve": light_curve,
        "dip": dip,
        "meta_analysis": meta_analysis,
        "subjects": subjects,
        "marked_points": marked_points,
        "judges": judges,
        "questionnaire": questionnaire,
        "random_field_plain": partial(random_field, channel_axis=False),
        "faint_source": faint_source,
        "stretched_field": stretched_field,
        "same_source": same_source,
        "chirp": chirp,
        "regimes": regimes,
        "aftershocks": aftershocks,
        "moderation": moderation,
        "grooming": grooming,
        "drift": drift,
    }
