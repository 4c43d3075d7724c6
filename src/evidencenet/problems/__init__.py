"""Worked problems with an exact log Bayes factor: the oracle of tests, demonstrations and benchmarks."""

from evidencenet.problems.counts import contingency_table as contingency_table
from evidencenet.problems.counts import overdispersion as overdispersion
from evidencenet.problems.gaussian import mean_test as mean_test
from evidencenet.problems.gaussian import t_test as t_test
from evidencenet.problems.gaussian import variance_test as variance_test
from evidencenet.problems.graphs import communities as communities
from evidencenet.problems.images import random_field as random_field
from evidencenet.problems.limits import far_apart as far_apart
from evidencenet.problems.limits import indistinguishable as indistinguishable
from evidencenet.problems.linear import bumps as bumps
from evidencenet.problems.linear import decay_or_trend as decay_or_trend
from evidencenet.problems.linear import polynomial_order as polynomial_order
from evidencenet.problems.location import heavy_tails as heavy_tails
from evidencenet.problems.location import two_humps as two_humps
from evidencenet.problems.positive import decades as decades
from evidencenet.problems.positive import lifetime as lifetime
from evidencenet.problems.problem import Problem as Problem
from evidencenet.problems.rastrigin import rastrigin as rastrigin
from evidencenet.problems.sequences import autocorrelation as autocorrelation
from evidencenet.problems.sequences import change_point as change_point
from evidencenet.problems.sets import correlated_cloud as correlated_cloud
from evidencenet.problems.sets import point_pattern as point_pattern
from evidencenet.problems.time_series import time_series as time_series
from evidencenet.problems.zoo import zoo as zoo
