# Each target makes its own virtual environment when there is none.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.ready-docs

.PHONY: demo test test-lowest test-matrix check format bench paper docs clean

demo: $(READY)                    ## the paper's 100-dimensional time series, end to end
	$(BIN)/python -m evidencenet.demo

# Much of its time is compilation: what one process has compiled, the others and the next run find.
test: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.pytest_cache/compiled
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.1
test: $(READY)                    ## the whole test suite
	$(BIN)/python -m pytest -n auto --dist worksteal

# The oldest versions that pyproject.toml allows, in an environment of their own. What is tested reads and writes
# every kind of file, draws, trains, saves, loads, plots, and runs the commands. Old libraries warn of what newer
# ones changed, so warnings are shown and are no errors.
SMOKE := tests/_common tests/simulation tests/losses tests/cli tests/training/test_checkpoint.py \
         tests/estimator/test_serialise.py tests/report/test_plots.py tests/report/test_svg.py
test-lowest: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.pytest_cache/compiled-lowest
test-lowest: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.1
test-lowest:                      ## a part of the tests, with the lowest dependencies
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet "uv>=0.8"
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable '.[files]' "pytest>=8.3"
	.venv-lowest/bin/python -m pytest -p no:cacheprovider -W default $(SMOKE)

# A part of the tests with every Python that is supported and installed here.
test-matrix:                      ## the same part with Python 3.11 to 3.13, as far as they are installed
	.ci/matrix $(SMOKE)

check: $(READY)                   ## lint, format, types, and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)                   ## accuracy and speed on the paper's time series
	$(BIN)/python benchmarks/speed.py

# The survey's file is public but not ours to keep: make paper DES=PATH compares on real data, else on a mock.
EXAMPLES := time_series loss_comparison nested_sampling density_estimation rastrigin lensing extensions generators
paper: $(READY)                   ## every result of the paper, in full, into docs/paper
	for name in $(EXAMPLES); do \
	  $(BIN)/python examples/$$name.py --out docs/paper $$(test $$name = lensing -a -n "$(DES)" && echo --data "$(DES)") || exit 1; \
	done
	$(BIN)/python examples/_common.py docs/paper

docs: $(DOCS)                     ## the site, in site/; runs the tutorial notebook
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The environment is made anew from scratch whenever the project file changes.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist site demo-output .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
