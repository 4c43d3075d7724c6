"""Bayesian model comparison from simulations alone, with Evidence Networks (Jeffrey & Wandelt 2023)."""

from evidencenet import checks as checks
from evidencenet import losses as losses
from evidencenet import networks as networks
from evidencenet import problems as problems
from evidencenet._version import __version__ as __version__
from evidencenet.alpha import choose_alpha as choose_alpha
from evidencenet.comparison import Comparison as Comparison
from evidencenet.coverage import coverage as coverage
from evidencenet.design import design as design
from evidencenet.estimator import EvidenceNetwork as EvidenceNetwork
from evidencenet.forecast import forecast as forecast
from evidencenet.hypothesis import HypothesisTest as HypothesisTest
from evidencenet.hypothesis import hypothesis_test as hypothesis_test
from evidencenet.models import Model as Model
from evidencenet.predictive import predictive_test as predictive_test
from evidencenet.recipe import Recipe as Recipe
from evidencenet.report import write_report as write_report
from evidencenet.saving import load as load
from evidencenet.simulate import SimulationError as SimulationError
from evidencenet.simulate import simulate as simulate
from evidencenet.simulations import Simulations as Simulations
from evidencenet.train import train as train
from evidencenet.validation import Validation as Validation
from evidencenet.validation import validate as validate
