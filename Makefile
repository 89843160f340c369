# Needs Python >= 3.11 with pip, and make. Everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: compare test test-slow check format clean

compare: .venv/installed  ## the main job: four setups on 5,000 MNIST images
	$(BIN)/python scripts/compare.py

test: .venv/installed  ## the tests, without the slow ones
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-slow: .venv/installed  ## the slow tests alone
	$(BIN)/python -m pytest -m slow -n auto --maxprocesses 2 --dist worksteal

check: .venv/installed  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv runs
