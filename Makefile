# Every target prepares its own environment in .venv and needs only make and Python 3.11 or later.
# Another interpreter: make PYTHON=python3.12 test

VENV  := .venv
RUN   := $(VENV)/bin/python
STAMP := $(VENV)/.installed-for
TSC   := 5.9.3
PIP   := $(RUN) -m pip install -qq --disable-pip-version-check -c constraints.txt

# Outside settings must not change what runs here: an active environment, a PYTHONPATH, a home-made prefix.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo tour test check bench torture fmt docs clean

help: ## this list
	@echo "Checkrein: pause, redirect and cancel for Python agents, where stop means stop."
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## opens a page with an agent to pause, redirect and cancel; needs no key and no network
	@$(VENV)/bin/checkrein demo

tour: $(STAMP) ## plays by itself in a minute: a naive loop, then Checkrein
	@$(VENV)/bin/checkrein demo --tour

test: $(STAMP) chromium ## every test except the torture ones
	@$(RUN) -m pytest -n 2 --dist loadfile --durations=5 || { \
	    echo "Two at a time something failed. It is tried once more, alone:"; \
	    $(RUN) -m pytest --last-failed --last-failed-no-failures none; }

check: $(STAMP) ## lint, formatting and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	@if command -v npx > /dev/null; then \
	    echo "tsc -p src/checkrein/ui/jsconfig.json"; \
	    npx --yes --loglevel=error --package=typescript@$(TSC) tsc -p src/checkrein/ui/jsconfig.json; \
	else echo "There is no Node here: the types of the page are not checked."; fi

# Tests of the page drive a Chromium of the system. Where none can be had they are skipped, and say so.
.PHONY: chromium
chromium:
	@if ! command -v chromium chromium-browser google-chrome > /dev/null && [ "$$(id -u)" = 0 ] && \
	    command -v apt-get > /dev/null; then \
	    echo "Installing chromium, which tests of the page need ..."; \
	    apt-get install -qq -y --no-install-recommends chromium > /dev/null 2>&1 || \
	    { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium > /dev/null; } || true; \
	fi

bench: $(STAMP) ## measure, and print what was measured
	@$(RUN) -m bench

torture: $(STAMP) ## the long tests: kill -9, freezes, full disks
	@$(RUN) -m pytest -m torture -s

fmt: $(STAMP) ## format the code and sort its imports
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .

docs: $(STAMP) ## write the generated pages of docs/ again
	@$(RUN) docs/generate.py

clean: ## remove .venv, caches and everything built
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp holds the folder it was made in: an environment that was copied or moved along with the checkout would go on
# importing the old one.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)

$(STAMP): pyproject.toml constraints.txt
	@for python in $(PYTHONS); do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	    python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Checkrein needs Python 3.11 or later; none was found as: $(PYTHONS)." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	    exit 1; \
	fi; \
	if $(RUN) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Bringing $(VENV) up to date with pyproject.toml and constraints.txt ..."; \
	else \
	    echo "Making $(VENV) and installing what is needed; this first time takes a minute or so ..."; \
	    $$python -m venv --clear $(VENV) || { \
	        echo "$$python could not make $(VENV); on Debian and Ubuntu: apt install python3-venv." >&2; exit 1; }; \
	fi
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation -e '.[dev]'
	@echo "$(CURDIR)" > $@
