"""The categories of warnings, and the log.

Every warning of the package is an `EvidenceWarning`, so that one line turns all of them off, or into errors::

    warnings.filterwarnings("error", category=evidencenet.EvidenceWarning)

What is worth knowing but no reason to worry goes to the log named "evidencenet". It shows nothing unless the
program that uses evidencenet turns it on::

    logging.basicConfig(level=logging.INFO)
"""

import logging

log = logging.getLogger("evidencenet")
log.addHandler(logging.NullHandler())


class EvidenceWarning(UserWarning):
    """Any warning of evidencenet."""


class EffectiveSizeWarning(EvidenceWarning):
    """Weighted draws are worth few draws of equal weight."""


class FailedDrawsWarning(EvidenceWarning):
    """Draws of a model failed. Log K accounts for them, but find out why they failed."""


class InputWarning(EvidenceWarning):
    """Input was accepted in a way that you should know of: columns reordered, labels from 1, padding."""


class RandomnessWarning(EvidenceWarning):
    """Draws are not what the seed promises: they repeat, or depend on random numbers from elsewhere."""


class RecalibrationWarning(EvidenceWarning):
    """Recalibration did not help, and was not applied."""


class TrustWarning(EvidenceWarning):
    """A result is less certain than its number looks."""
