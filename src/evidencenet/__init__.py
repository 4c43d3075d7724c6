"""Bayesian model comparison from simulations alone, with Evidence Networks (Jeffrey & Wandelt 2023)."""

from evidencenet import checks as checks
from evidencenet import losses as losses
from evidencenet import networks as networks
from evidencenet import problems as problems
from evidencenet._common.warnings import EffectiveSizeWarning as EffectiveSizeWarning
from evidencenet._common.warnings import EvidenceWarning as EvidenceWarning
from evidencenet._common.warnings import FailedDrawsWarning as FailedDrawsWarning
from evidencenet._common.warnings import InputWarning as InputWarning
from evidencenet._common.warnings import RandomnessWarning as RandomnessWarning
from evidencenet._common.warnings import RecalibrationWarning as RecalibrationWarning
from evidencenet._common.warnings import TrustWarning as TrustWarning
from evidencenet._version import __version__ as __version__
from evidencenet.checks.coverage import coverage as coverage
from evidencenet.estimator.answer import Comparison as Comparison
from evidencenet.estimator.answer import Comparisons as Comparisons
from evidencenet.estimator.network import EvidenceNetwork as EvidenceNetwork
from evidencenet.estimator.serialise import load as load
from evidencenet.estimator.train import train as train
from evidencenet.estimator.validate import Validation as Validation
from evidencenet.estimator.validate import validate as validate
from evidencenet.questions.absolute import Evidence as Evidence
from evidencenet.questions.absolute import absolute_evidence as absolute_evidence
from evidencenet.questions.alpha import choose_alpha as choose_alpha
from evidencenet.questions.design import design as design
from evidencenet.questions.forecast import forecast as forecast
from evidencenet.questions.hypothesis import HypothesisTest as HypothesisTest
from evidencenet.questions.hypothesis import hypothesis_test as hypothesis_test
from evidencenet.questions.predictive import predictive_test as predictive_test
from evidencenet.rare.deepen import deepen as deepen
from evidencenet.rare.draw import rare_draws as rare_draws
from evidencenet.rare.steer import UnsteerableError as UnsteerableError
from evidencenet.report.page import write_report as write_report
from evidencenet.simulation.dataset import Simulations as Simulations
from evidencenet.simulation.draw import simulate as simulate
from evidencenet.simulation.failures import SimulationError as SimulationError
from evidencenet.simulation.io.draws import read_data as read_data
from evidencenet.simulation.model import Model as Model
from evidencenet.simulation.rare_draws import RareDraws as RareDraws
from evidencenet.simulation.status import Status as Status
from evidencenet.simulation.status import status as status
from evidencenet.training.recipe import Recipe as Recipe


def __getattr__(name: str) -> object:
    """Import `evidencenet.sklearn` when it is first used: scikit-learn need not be installed."""
    if name == "sklearn":
        import importlib

        return importlib.import_module("evidencenet.sklearn")
    import difflib

    hints = {
        "compare": "net.compare(x)",
        "predict": "net.compare(x)",
        "fit": "evidencenet.train(sims)",
        "read_csv": "evidencenet.Simulations.read(path), or evidencenet.read_data(path) for observations",
        "read": "evidencenet.Simulations.read(path), or evidencenet.read_data(path) for observations",
        "recalibrate": "net.recalibrate(sims)",
        "log_bayes_factor": "net.log_bayes_factor(x)",
        "report": "evidencenet.write_report",
        "Network": "evidencenet.train(sims), which makes an EvidenceNetwork",
    }
    close = difflib.get_close_matches(name, [known for known in globals() if known[0] != "_"], n=1)
    meant = hints.get(name) or (f"evidencenet.{close[0]}" if close else "")
    advice = f". Did you mean {meant}?" if meant else ""
    raise AttributeError(f"module 'evidencenet' has no attribute {name!r}{advice}")
