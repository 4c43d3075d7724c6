"""Networks: architectures (what can be chosen), the Equinox modules they build, and ensembles of them.

A network maps one x to raw outputs. It must not know labels or how it is trained.
"""

from evidencenet.networks.architectures import Architecture as Architecture
from evidencenet.networks.architectures import Autoregression as Autoregression
from evidencenet.networks.architectures import Categories as Categories
from evidencenet.networks.architectures import DeepSet as DeepSet
from evidencenet.networks.architectures import Dense as Dense
from evidencenet.networks.architectures import Groups as Groups
from evidencenet.networks.architectures import Image as Image
from evidencenet.networks.architectures import Irregular as Irregular
from evidencenet.networks.architectures import Modes as Modes
from evidencenet.networks.architectures import Neighbours as Neighbours
from evidencenet.networks.architectures import Parts as Parts
from evidencenet.networks.architectures import Recurrence as Recurrence
from evidencenet.networks.architectures import Regression as Regression
from evidencenet.networks.architectures import Sequence as Sequence
from evidencenet.networks.architectures import Shapes as Shapes
from evidencenet.networks.architectures import Spectrum as Spectrum
from evidencenet.networks.architectures import Squares as Squares
from evidencenet.networks.architectures import Table as Table
from evidencenet.networks.architectures import Transitions as Transitions
from evidencenet.networks.architectures import Windows as Windows
from evidencenet.networks.architectures import from_dict as from_dict
from evidencenet.networks.architectures import is_exchangeable as is_exchangeable
from evidencenet.networks.architectures import scales_alike as scales_alike
from evidencenet.networks.architectures import shares_weights as shares_weights
from evidencenet.networks.architectures import to_dict as to_dict
from evidencenet.networks.architectures import without_evidence_head as without_evidence_head
