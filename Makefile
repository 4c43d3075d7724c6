# Each target makes its own virtual environment when there is none.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check format bench clean

demo: $(READY)                    ## the paper's 100-dimensional time series, end to end
	$(BIN)/python -m evidencenet.demo

test: $(READY)                    ## the whole test suite
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(READY)                   ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)                   ## accuracy and speed on the paper's time series
	$(BIN)/python benchmarks/time_series.py

# The environment is made anew from scratch whenever the project file changes.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
