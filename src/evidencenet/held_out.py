"""What a network says of draws that it was not trained on."""

from dataclasses import dataclass

import numpy as np

from evidencenet.trust import Range, validated_range


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Log K of held-out draws against model 0, (n, K), as the network sees them, and their models (n,)."""

    log_k: np.ndarray
    label: np.ndarray

    def range(self, above: int, below: int) -> Range:
        """Return the log K of two models that these draws can vouch for."""
        pair = (self.label == above) | (self.label == below)
        return validated_range(self.log_k[pair, above] - self.log_k[pair, below], self.label[pair] == above)
