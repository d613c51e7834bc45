# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make run     measure GRO off and on here, or show the recorded sample, and print the table
# make test    the tests; as root they drive real traffic in namespaces of their own
# make lab     JupyterLab with the notebooks
# make bench   the speed figures of the README
# make hook    a git hook that refuses commits of notebooks with outputs
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# e.g. make run SET="--set frame_sizes=64 --set blocks=20"
SET ?=

.PHONY: run test lab bench lint hook doctor clean setup

run: $(VENV)/.installed
	$(BIN)/rxbook run gro_on_off $(SET)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lab: $(VENV)/.installed
	$(BIN)/jupyter lab --notebook-dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/run.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check lib tests benchmarks
	$(BIN)/ruff format --check lib tests benchmarks
	$(BIN)/nbstripout --verify --keep-id notebooks/*.ipynb

# Refuses commits of notebooks with outputs.
hook: $(VENV)/.installed-dev
	ln -sf ../../.ci/pre-commit "$$(git rev-parse --git-path hooks)/pre-commit"

doctor: $(VENV)/.installed
	$(BIN)/rxbook doctor

setup: $(VENV)/.installed

# Installed once, and again only when the package's dependencies change.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m ipykernel install --sys-prefix --name rxbook --display-name rxbook >/dev/null
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name it: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv is missing. Debian: apt install python3-venv; Fedora: dnf install python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	if [ -x $(BIN)/rxbook ]; then $(BIN)/rxbook clean; fi
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
