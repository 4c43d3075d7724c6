"""The lensing example: its theory against jax-cosmo and closed forms, its files, and a run at small sizes."""

import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.integrate import quad

EXAMPLES = Path(__file__).parents[2] / "examples"
pytest.importorskip("jax_cosmo")
fits = pytest.importorskip("astropy.io.fits")
if str(EXAMPLES) not in sys.path:
    # As if it were run: examples import what they share from beside them.
    sys.path.append(str(EXAMPLES))

import jax_cosmo as jc  # noqa: E402
from jax_cosmo.angular_cl import angular_cl  # noqa: E402

import lensing  # noqa: E402
import lensing_data  # noqa: E402
import lensing_fresh_noise  # noqa: E402
import lensing_theory as theory  # noqa: E402


@pytest.fixture(scope="module")
def survey() -> lensing_data.Survey:
    return lensing.observed_survey(None, 1)


def write(path: Path, survey: lensing_data.Survey, **changes: Any) -> Path:
    """Write a file like the survey's, with points below the cuts, and rows of another survey before it."""
    edges = np.geomspace(2.5, 250, 21)
    n = len(lensing_data.PAIRS) * 20
    bins = np.repeat(np.array(lensing_data.PAIRS) + 1, 20, axis=0)
    covariance = np.eye(2 * n + 75) * 1e-10
    parts = [fits.PrimaryHDU()]
    for kind, name in enumerate(("xip", "xim")):
        angle = np.tile(np.column_stack([edges[:-1], edges[1:]]), (10, 1))
        value = np.full(n, np.nan)
        keep = lensing_data.kept(np.full(n, kind), bins - 1, angle)
        value[keep] = survey.observed[survey.kind == kind]
        columns = {"BIN1": bins[:, 0], "BIN2": bins[:, 1], "VALUE": value}
        columns |= {"ANGLEMIN": angle[:, 0], "ANGLEMAX": angle[:, 1]}
        parts.append(table(name, columns))
        if kind == 0:
            rows = 75 + np.flatnonzero(keep)
    rows = np.concatenate([rows, 75 + n + np.flatnonzero(keep)])
    covariance[np.ix_(rows, rows)] = survey.covariance
    image = fits.ImageHDU(covariance, name="COVMAT")
    image.header.update({"STRT_0": 0, "NAME_0": "En", "STRT_1": 75, "NAME_1": "xip", "STRT_2": 75 + n})
    image.header["NAME_2"] = "xim"
    galaxies = {"Z_MID": survey.redshift} | {f"BIN{i + 1}": 7 * survey.density[i] for i in range(4)}
    parts += [image, table("nz_source_des", galaxies | changes)]
    fits.HDUList(parts).writeto(path)
    return path


def table(name: str, columns: dict[str, np.ndarray]) -> Any:
    made = [
        fits.Column(key, "K" if key in ("BIN1", "BIN2") and name != "nz_source_des" else "D", array=values)
        for key, values in columns.items()
    ]
    return fits.BinTableHDU.from_columns(made, name=name)


def test_spectra_are_those_of_jax_cosmo(survey: lensing_data.Survey) -> None:
    # Planck 2018 (TT,TE,EE+lowE+lensing).
    h = 0.6736
    planck = np.array([0.3153, 2.1, 0.9649, 0.02237 / h**2, h], np.float32)
    where, some = theory.grid(survey.redshift), [20, 30, 40, 50]
    parts = theory.spectra(planck[None], where, survey.density)[0][:, some]

    def direct(parameters: jax.Array, alignment: float) -> tuple[jax.Array, jax.Array]:
        galaxies = [jc.redshift.smail_nz(3.0, 2.5, depth, zmax=3.0) for depth in theory.DEPTHS]
        probe = jc.probes.WeakLensing(galaxies, jc.bias.constant_linear_bias(alignment))
        cosmo = theory.cosmology(parameters)
        return cosmo.sigma8, angular_cl(cosmo, where.multipole[some], [probe]).T

    # Less work for the compiler: this is run only three times.
    compiled = jax.jit(direct, compiler_options={"xla_backend_optimization_level": 0})
    for alignment in (0.0, 1.0, -2.0):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            sigma8, wanted = compiled(planck, alignment)
        # With neutrinos of 0.06 eV, which lower σ8 by 2%, Planck's is 0.811.
        assert float(sigma8) == pytest.approx(1.02 * 0.811, rel=0.01)
        ours = np.einsum("tls,t->ls", parts, alignment ** np.arange(3))
        size = np.einsum("tls,t->ls", np.abs(parts), np.abs(alignment) ** np.arange(3))
        # Cells of 0.01 in redshift are wide for the nearest galaxies, on small scales: 0.15% of the parts.
        assert np.abs((ours - wanted) / size).max() < 2e-3
        if alignment:
            opposite = np.einsum("tls,t->ls", parts, (-alignment) ** np.arange(3))
            assert np.abs((opposite - wanted) / size).min() > 0.01


def test_operator_is_a_hankel_transform() -> None:
    kind = np.array([0, 0, 0, 1, 1, 1])
    angle = np.array([[2.5, 3.15], [10, 12.6], [40, 50.4]] * 2)
    where = theory.grid(np.array([0.5, 1.0])).multipole
    matrix = theory.operator(kind, angle, where)
    edges = np.radians(angle / 60)
    for scale in np.radians(np.array([3.0, 8.0, 30.0]) / 60):
        # ∫ℓ·exp(−ℓ²s²/2)·J0(ℓθ)dℓ = exp(−θ²/2s²)/s², and ∫ℓ⁵·exp(−ℓ²s²/2)·J4(ℓθ)dℓ = θ⁴/s¹⁰·exp(−θ²/2s²).
        bell = np.exp(-0.5 * (edges / scale) ** 2)
        mean = (bell[:, 0] - bell[:, 1]) * 2 / (edges[:, 1] ** 2 - edges[:, 0] ** 2) / (2 * np.pi)
        spectrum = np.exp(-0.5 * (where * scale) ** 2)
        largest = 1 / (2 * np.pi * scale**2)
        np.testing.assert_allclose((matrix @ spectrum)[:3], mean[:3], atol=1e-3 * largest)
        rising = (matrix @ (where**4 * spectrum))[3:]
        peak = 16 * np.exp(-2) / (2 * np.pi * scale**6)
        for found, (low, high) in zip(rising, edges[3:], strict=True):

            def integrand(t: float, s: float = scale) -> float:
                return t**5 / s**10 * np.exp(-0.5 * (t / s) ** 2) / (2 * np.pi)

            wanted = quad(integrand, low, high)[0] * 2 / (high**2 - low**2)
            assert found == pytest.approx(wanted, abs=1e-3 * peak)


def test_files_are_read_with_scale_cuts(survey: lensing_data.Survey, tmp_path: Path) -> None:
    found = lensing_data.read(write(tmp_path / "shear.fits", survey))
    assert (found.kind == 0).sum() == 166
    assert (found.kind == 1).sum() == 61
    assert np.isfinite(found.observed).all()
    for name in ("kind", "pair", "angle", "observed", "covariance", "redshift", "density"):
        np.testing.assert_allclose(getattr(found, name), getattr(survey, name), rtol=1e-12)
    assert found.observed.dtype == np.float64
    assert found.digest() == lensing_data.read(tmp_path / "shear.fits").digest()


def test_files_of_another_kind_are_refused(survey: lensing_data.Survey, tmp_path: Path) -> None:
    fits.HDUList([fits.PrimaryHDU()]).writeto(tmp_path / "empty.fits")
    with pytest.raises(ValueError, match="wanted a part xip, there are only PRIMARY"):
        lensing_data.read(tmp_path / "empty.fits")
    with pytest.raises(ValueError, match="cells of equal width"):
        lensing_data.read(write(tmp_path / "odd.fits", survey, Z_MID=survey.redshift + 1))


def test_noise_is_that_of_the_survey(survey: lensing_data.Survey) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.multivariate_normal(np.zeros(227), survey.covariance, size=4_000)
    white = survey.whitened(drawn)
    # 4,000 draws know a variance to 2.2%; of 227 the worst is some 3.5 times as far off.
    assert np.abs(white.var(axis=0) - 1).max() < 0.1
    # The survey that is imitated is as deep as DES: its mean is seen at some 30 times the noise.
    assert 15 < np.linalg.norm(survey.whitened(survey.observed[None])) < 60


def test_run(survey: lensing_data.Survey, tmp_path: Path) -> None:
    path = write(tmp_path / "shear.fits", survey)
    sizes = {**lensing.QUICK, "draws": 1_000}
    result = lensing.main(data=str(path), store=str(tmp_path / "draws"), progress=False, **sizes)
    reference = result.numbers["reference"]
    # Two ways to the same K, whose errors both runs state.
    both, error = reference["savage_dickey"]
    assert reference["log_k"] == pytest.approx(both, abs=4 * np.hypot(error, reference["error"]))
    assert reference["error"] < 0.3
    assert reference["log_k"] != pytest.approx(-both, abs=4 * reference["error"])
    mean, spread = reference["alignment"]
    assert abs(mean - theory.ORDINARY_ALIGNMENT) < 4 * spread < 2
    least = reference["least_chi_squared"]
    assert least[1] - 3 < least[0] < 227 + 5 * np.sqrt(2 * 227)
    assert set(result.figures) == {"data", "coverage", "log-k"}
    assert sum(result.numbers["failed"]) == 0
    for found in result.numbers["networks"].values():
        assert np.isfinite(found["recalibrated"]["log_k"])
        assert len(found["as trained"]["members"]) == 2


def test_noise_drawn_anew_keeps_the_theory(survey: lensing_data.Survey) -> None:
    model = lensing_fresh_noise.clean_models(survey, theory.shear(survey))[1]
    rng = np.random.default_rng(1)
    clean, _ = model.draw_clean(rng, 4, model.draw_parameters(rng, 4))
    parts = np.asarray(clean)
    assert parts.shape == (4, 3, 227)
    seed = np.random.default_rng(2)
    noise = np.asarray(model.observed(np.random.default_rng(2), clean))
    noise = noise - theory.mean(parts, seed.uniform(-theory.MOST_ALIGNED, theory.MOST_ALIGNED, size=4))
    # 4 × 227 standard normals: their variance has a standard error of 0.047.
    assert abs(noise.var() - 1) < 4 * 0.047
