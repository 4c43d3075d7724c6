"""`forecast`: how likely future data of a model are to favour it, and for which parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet._common import wording
from evidencenet._common.arrays import Data, Parameters, arrays_of, index_of, kind_of
from evidencenet._common.display import card, frame
from evidencenet._common.estimate import Estimate, fraction
from evidencenet._common.harmless import harmless
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model

if TYPE_CHECKING:
    import pandas

# The name of a parameter (in a dict or a named tuple), a column, or a function of all parameters.
Parameter = str | int | Callable[[Any], np.ndarray]
# Odds of 20 : 1, "strong" evidence on the scale of Kass & Raftery (1995).
LOG_20 = float(np.log(20.0))


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """The probability that data of a model will favour it beyond a threshold; print it or call `plot`.

    Attributes
    ----------
    names
        The model that makes the data, and the one that it is compared with.
    threshold
        Natural log K from which on the model counts as favoured.
    n
        How many draws were used.
    overall
        The probability on average over the prior, with its error.
    parameters
        Names of the D parameters by which the draws are divided into cells; D can be 0.
    edges
        The edges of the bins of each parameter, D arrays.
    count
        Number of draws in each cell, an array with D axes.
    probability
        The probability of each cell and its error, both with the shape of `count`; NaN if it has no draws.
    """

    names: tuple[str, str]
    threshold: float
    n: int
    overall: Estimate
    parameters: tuple[str, ...]
    edges: tuple[np.ndarray, ...]
    count: np.ndarray
    probability: Estimate

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {name:<32} {text}" for name, text in self._texts())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._texts())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row for each cell: the ends of its bins, draws, probability and error."""
        return frame([{"cell": i, **row} for i, row in enumerate(self._cells())], "cell")

    def plot(self, axis: Any = None) -> Any:
        """Draw the probability against one parameter with errors, or two as a map; returns the axis."""
        from evidencenet.report import plots

        return plots.forecast(self, axis)

    def _title(self) -> str:
        odds = wording.odds(self.threshold)
        one, other = map(harmless, self.names)
        return f"Probability that data of {one} favour it over {other} by {odds} or more"

    def _cells(self) -> list[dict[str, Any]]:
        rows = []
        value, error = np.asarray(self.probability.value), np.asarray(self.probability.error)
        for cell in np.ndindex(self.count.shape if self.parameters else (0,)):
            row: dict[str, Any] = {}
            for name, edges, i in zip(self.parameters, self.edges, cell, strict=True):
                row |= {f"{name} from": float(edges[i]), f"{name} to": float(edges[i + 1])}
            numbers = {"probability": float(value[cell]), "error": float(error[cell])}
            rows.append(row | {"draws": int(self.count[cell])} | numbers)
        return rows

    def _texts(self) -> list[tuple[str, str]]:
        texts = [("overall", f"{self.overall}  ({self.n:,} draws)")]
        for row in self._cells():
            ends = [
                f"{harmless(name)} {row[f'{name} from']:.3g} to {row[f'{name} to']:.3g}"
                for name in self.parameters
            ]
            text = wording.with_error(row["probability"], row["error"]) if row["draws"] else "unknown"
            texts.append((", ".join(ends), f"{text}  ({row['draws']:,} draws)"))
        return texts


def forecast(
    net: EvidenceNetwork,
    source: Model | Simulations,
    *,
    model: int | str | None = None,
    against: int | str | None = None,
    threshold: float = LOG_20,
    parameter: Parameter | list[Parameter] | tuple[Parameter, ...] | None = None,
    bins: int | Sequence[float] | Sequence[int | Sequence[float]] = 8,
    n: int = 20_000,
    seed: int = 0,
) -> Forecast:
    """Forecast how likely data of a model are to favour it beyond a threshold of log K.

    Parameters
    ----------
    net
        The network.
    source
        Where the data come from. Either a model, of which `n` draws are made: one of the network's models, or
        a variant of it with other parameters. Or draws that were not used in training; make them with
        ``keep_parameters=True`` if you want the probability by parameter. Weighted draws are first thinned to
        draws of equal weight.
    model, against
        The model to be favoured and the one that it is compared with, by label or by name. By default `model`
        is the model with the name of `source`, or model 1 if `source` are draws; `against` is model 0, or
        model 1 if `model` is model 0.
    threshold
        Natural log K; log 20 by default, odds of 20 : 1.
    parameter
        The parameter to divide the draws by: its name (a key of a dict), the number of its column (or of the
        entry of a tuple), or a function from the parameters to an array (n,). A list of two gives a map, a
        longer list a table. By default the model's parameter, if it has only one.
    bins
        How many bins for each parameter, each with the same number of draws; or the edges: one list for all
        parameters, or one list for each. Draws outside the outermost edges are in no bin.
    n, seed
        How many draws to make of a model, and with which seed.

    Returns
    -------
    Forecast
        The probability `overall` and for each cell. The errors combine, in quadrature, the binomial error and
        the effect of the error of log K. The latter is taken to have the same sign for all draws, which makes
        it rather too large.

    Notes
    -----
    Failed draws are left out, since they have no log K.

    Examples
    --------
    >>> ahead = forecast(net, trend, parameter="slope", n=20_000)  # doctest: +SKIP
    >>> ahead.overall.value, ahead.to_dataframe()  # doctest: +SKIP
    """
    if not isinstance(net, EvidenceNetwork):
        raise TypeError(f"forecast wanted a network made by train or load, got {kind_of(net)}.")
    if not np.isfinite(threshold):
        raise ValueError(f"threshold = {threshold}; wanted a finite natural log K, such as log 20 = 3.0.")
    above, below = _pair(net.names, source, model, against)
    if isinstance(source, Model):
        sims = simulate([source], n, seed=seed, keep_parameters=True, progress=False)
        x, theta = sims.x, None if sims.parameters is None else sims.parameters[0]
    else:
        sims = source.of_equal_weight()
        label = index_of(net.names[above], sims.names)
        x, theta = sims.of(label), None if sims.parameters is None else sims.parameters[label]
    favoured = _favoured(net, x, above, below, threshold)
    values = _values_by_name(parameter, theta)
    edges = _edges(bins, values)
    shape = tuple(len(ends) - 1 for ends in edges)
    cell, inside = _cell(edges, list(values.values()), favoured.shape[1])
    overall = _probability(favoured, np.zeros(favoured.shape[1], dtype=np.intp), ())
    return Forecast(
        names=(net.names[above], net.names[below]),
        threshold=float(threshold),
        n=favoured.shape[1],
        overall=Estimate(float(overall.value), float(overall.error)),
        parameters=tuple(values),
        edges=tuple(edges),
        count=np.bincount(cell[inside], minlength=int(np.prod(shape))).reshape(shape),
        probability=_probability(favoured[:, inside], cell[inside], shape),
    )


def _pair(
    names: tuple[str, ...], source: Any, model: int | str | None, against: int | str | None
) -> tuple[int, int]:
    """Return the labels of the model to be favoured and of the other one."""
    if not isinstance(source, Model | Simulations):
        raise TypeError(f"source must be a Model or Simulations of one, got {kind_of(source)}.")
    if model is None and isinstance(source, Model) and source.name not in names:
        raise ValueError(
            f"the network compares {', '.join(names)}, and {source.name!r} is none of them. Say with model= "
            "which of them the data should favour."
        )
    if model is None:
        model = source.name if isinstance(source, Model) else 1
    above = index_of(model, names)
    below = index_of(int(above == 0) if against is None else against, names)
    if above == below:
        raise ValueError(f"a model cannot be compared with itself: both are {names[above]!r}.")
    return above, below


def _favoured(net: EvidenceNetwork, x: Data, above: int, below: int, threshold: float) -> np.ndarray:
    """Whether log K reaches the threshold: as it is, with its error added, and with it subtracted, (3, n)."""
    log_k = net.log_bayes_factor(x, model=above, against=below)
    # If the error of log K is not known, only the binomial error remains.
    error = np.nan_to_num(net.error(x, model=above, against=below))
    return np.stack([log_k, log_k + error, log_k - error]) >= threshold


def _probability(favoured: np.ndarray, cell: np.ndarray, shape: tuple[int, ...]) -> Estimate:
    """Return the fraction of favoured draws in each cell, with its error."""
    cells = int(np.prod(shape))
    count = np.bincount(cell, minlength=cells)
    hits, most, least = (np.bincount(cell, weights=row, minlength=cells) for row in favoured)
    binomial = fraction(hits, count)
    network_error = 0.5 * (most - least) / np.maximum(count, 1)
    error = np.hypot(binomial.error, network_error)
    return Estimate(np.reshape(binomial.value, shape), np.reshape(error, shape))


def _values_by_name(
    parameter: Parameter | list[Parameter] | tuple[Parameter, ...] | None, theta: Parameters | None
) -> dict[str, np.ndarray]:
    """Return the values (n,) of each wanted parameter, by its name."""
    if parameter is None:
        if theta is None or len(arrays_of(theta)) != 1:
            return {}
        (only,) = arrays_of(theta)
        name = next(iter(theta)) if isinstance(theta, dict) else "parameter"
        return {name: np.ravel(only).astype(np.float64)} if only.size == len(only) else {}
    if theta is None:
        raise ValueError(
            "these draws come without their parameters. Make them with simulate(..., keep_parameters=True) "
            "from a model that has a prior."
        )
    wanted = list(parameter) if isinstance(parameter, list | tuple) else [parameter]
    by_name: dict[str, np.ndarray] = {}
    for number, one in enumerate(wanted):
        name, values = _name_and_values(one, theta)
        values = np.asarray(values, dtype=np.float64)
        if values.shape not in ((n := len(arrays_of(theta)[0]),), (n, 1)):
            raise ValueError(
                f"parameter {name!r} has shape {values.shape}; wanted one number per draw, ({n},). "
                "Give a function of the parameters that returns it."
            )
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            raise ValueError(f"parameter {name!r} is NaN or infinite for {bad} of {n} draws.")
        by_name[name if name not in by_name else f"{name} ({number + 1})"] = values.ravel()
    return by_name


def _name_and_values(parameter: Parameter, theta: Parameters) -> tuple[str, Any]:
    if callable(parameter):
        name = getattr(parameter, "__name__", "parameter")
        return "parameter" if name == "<lambda>" else name, parameter(theta)
    if isinstance(theta, dict):
        if parameter not in theta:
            raise ValueError(f"there is no parameter {parameter!r}; there are {', '.join(map(repr, theta))}.")
        return str(parameter), theta[str(parameter)]
    if isinstance(parameter, str):
        if parameter not in getattr(theta, "_fields", ()):
            raise ValueError(
                f"the parameters have no names, got {parameter!r}. Give the number of a column or a function."
            )
        return parameter, getattr(theta, parameter)
    columns = theta if isinstance(theta, tuple) else np.reshape(theta, (len(theta), -1)).T
    if not 0 <= parameter < len(columns):
        raise ValueError(f"there is no parameter {parameter}; there are 0 to {len(columns) - 1}.")
    return f"parameter {parameter}", columns[parameter]


def _edges(bins: Any, values_by_name: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the edges of the bins of each parameter."""
    one_for_each = isinstance(bins, list | tuple) and any(np.ndim(part) == 1 for part in bins)
    bins_of = list(bins) if one_for_each else [bins] * len(values_by_name)
    if len(bins_of) != len(values_by_name):
        raise ValueError(
            f"bins = {bins!r} is for {len(bins_of)} parameters; there are {len(values_by_name)}."
        )
    edges = []
    for wanted, (name, values) in zip(bins_of, values_by_name.items(), strict=True):
        if np.ndim(wanted) == 0:
            if wanted != int(wanted) or wanted < 1:
                raise ValueError(f"bins = {wanted}; wanted a whole number of bins, or their edges.")
            ends = np.unique(np.quantile(values, np.linspace(0, 1, int(wanted) + 1)))
        else:
            ends = np.asarray(wanted, dtype=np.float64)
        if len(ends) < 2 or not (np.diff(ends) > 0).all():
            raise ValueError(
                f"the edges of the bins of {name!r} are {ends}; wanted two or more, in increasing order."
            )
        edges.append(ends)
    return edges


def _cell(edges: list[np.ndarray], values: list[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cell of each draw, and whether the draw lies inside the outermost edges, both (n,)."""
    cell, inside = np.zeros(n, dtype=np.intp), np.ones(n, dtype=bool)
    for ends, column in zip(edges, values, strict=True):
        inside &= (column >= ends[0]) & (column <= ends[-1])
        cell = cell * (len(ends) - 1) + np.searchsorted(ends[1:-1], column, side="right")
    return cell, inside
