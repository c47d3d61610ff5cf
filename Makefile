# The project's commands. A fresh clone needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.installed

.PHONY: shared-moe test test-slow lint types lock clean
.DEFAULT_GOAL := shared-moe

# The lock pins every package with its hashes; the environment is made again when it changes.
$(READY): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

shared-moe: $(READY)  ## a DeepSeek shared expert, compiled, simulated cycle by cycle, compared bit for bit
	$(RUN) -m testbench.shared_moe --engine pysim

test: $(READY)  ## the default test run
	$(RUN) -m pytest

test-slow: $(READY)  ## the long tests too
	$(RUN) -m pytest -m slow

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) -m isa.stage_lint

types: $(READY)
	$(VENV)/bin/basedpyright --warnings

lock:  ## refresh requirements.lock from pyproject.toml (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --all-extras pyproject.toml -o requirements.lock

clean:
	rm -rf build $(VENV)
