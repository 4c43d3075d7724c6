"""Checks of log K that need no truth: arrays (log K, labels) in, records out.

They work on log K of any Bayes-factor code. They must not know networks or figures.
"""

from evidencenet.checks.check import Check as Check
from evidencenet.checks.check import examine as examine
from evidencenet.checks.moments import mean_probability as mean_probability
from evidencenet.checks.moments import turing_good as turing_good
from evidencenet.checks.range import validated_range as validated_range
from evidencenet.checks.scores import score as score
