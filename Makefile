# Everything this project does, on a machine that has only Python (3.11 or newer) and make. `make help` lists it.
#
#   make demo PYTHON=/path/to/python3.12    choose the Python that the environment is made with
#   make test TESTS=tests/project/test_layers.py    run some of the tests
#   make test JOBS=8                        with more processes (2 by default)
#
# The environment lies in .venv; a target installs what it needs when pyproject.toml is newer than its stamp there.

VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2
TESTS ?=
EXAMPLES ?= 2000
# Each process begins with its part of the files, slowest first (tests/conftest.py); who has done takes from the other's end.
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist worksteal

# Tried in this order when PYTHON is not given. Each is run, not only looked up: a name on the path may be a shim.
PYTHON ?= python3.13 python3.12 python3.11 python3.14 python3 python

# torch's default wheel for Linux brings several gigabytes of CUDA: ask for the CPU build, which pip finds where its
# configuration points to an index that has it.
ifeq ($(shell uname -s),Linux)
TORCH ?= torch==2.13.0+cpu
else
TORCH ?= torch==2.13.0
endif

# The environment is our own: what the caller's shell adds to the import path stays out of it.
unexport PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-torch check format bench fuzz mutate golden clean distclean

help:  ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1 \2/p' Makefile | while read -r name what; do \
	    printf '  make %-11s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.with-examples  ## train a network on handwritten digits, show its IR and a kernel, export it to ONNX
	@$(PY) examples/digits.py

test: $(VENV)/.with-dev  ## run the tests, starting from an empty kernel cache
	@$(PYTEST) --fresh-kernels --durations 10 $(TESTS)

test-torch: $(VENV)/.with-dev $(VENV)/.with-torch  ## run the comparisons with PyTorch
	@$(PYTEST) -m torch $(TESTS)

check: $(VENV)/.with-dev  ## ruff, formatting, mypy, pyright, layers
	@$(PY) -m ruff check --output-format concise .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/basedpyright
	@$(VENV)/bin/lint-imports

format: $(VENV)/.with-dev  ## sort imports and format all files
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

bench: $(VENV)/.with-bench  ## measure against JAX and PyTorch, table on screen and out/bench.json
	@$(MAKE) --no-print-directory $(VENV)/.with-torch || echo "bench: going on without torch"
	@$(PY) -m benchmarks $(BENCH)

fuzz: $(VENV)/.with-dev  ## search random programs, run the tests as on lesser CPUs, half an hour (EXAMPLES=20000: search ten times as long)
	@HYPOTHESIS_PROFILE=fuzz FUZZ_EXAMPLES=$(EXAMPLES) $(PYTEST) -m fuzz $(TESTS)
	@TEST_KERNELS=compiled $(PYTEST) -m "kernels and not fuzz and not torch" $(TESTS)  # all that runs as Python in make test
	@$(PY) tests/support/cpus.py avx2 $(PYTEST) --fresh-kernels $(TESTS)  # all that make test runs: up to 10 minutes, as there
	@$(PY) tests/support/cpus.py x86-64 $(PYTEST) --fresh-kernels -m "cpu and not fuzz and not torch" $(TESTS)  # up to 10 minutes

mutate: $(VENV)/.with-dev  ## spoil every operator in turn and see that the tests catch it
	@$(PY) tests/mutate.py

golden: $(VENV)/.with-dev  ## rewrite the golden texts under tests/golden (review the difference before you commit)
	@$(PY) -m pytest -q --update-golden $(TESTS)

clean:  ## remove what was made, but keep the environment
	rm -rf out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	rm -rf $(VENV)

# ---- the environment ------------------------------------------------------------------------------------------------------

# pip's long report, cut down to one line a package as it comes. A pipe hides how pip ended, so that is kept in a file.
define install
	@rm -f $(VENV)/.failed
	@{ $(PY) -m pip install $(1) || touch $(VENV)/.failed; } | while read -r line; do \
	    case "$$line" in \
	        Collecting*) printf '  %s\n' "$${line%% (from*}" ;; \
	        "Installing collected"*) printf '  Unpacking ...\n' ;; \
	    esac; \
	done; test ! -e $(VENV)/.failed
endef

$(VENV)/.with-torch: | $(VENV)/.ready
	@$(PY) -c 'import torch' 2>/dev/null || { echo "Installing $(TORCH)"; $(PY) -m pip install -q "$(TORCH)"; } || { \
	    echo "$(TORCH) could not be installed. Install PyTorch's CPU build into $(VENV) yourself, or name a"; \
	    echo "requirement that pip can find here: make TORCH=torch==2.13.0 ..."; exit 1; }
	@touch $@

$(VENV)/.with-%: pyproject.toml | $(VENV)/.ready
	@echo "Installing tracer and what \"$*\" needs into $(VENV) (the first time takes a minute or two)"
	$(call install,-e ".[$*]")
	@touch $@

# An environment that is there and works is kept.
$(VENV)/.ready:
	@if $(PY) -m pip --version >/dev/null 2>&1; then touch $@; exit 0; fi; \
	for python in $(PYTHON); do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Making $(VENV) with $$("$$python" --version) ($$(command -v "$$python"))"; \
	        rm -rf $(VENV); "$$python" -m venv $(VENV) && touch $@; exit $$?; \
	    fi; \
	done; \
	echo "No usable Python found: this project needs Python 3.11 or newer, with its venv and ensurepip modules."; \
	for python in $(PYTHON); do \
	    if found=$$("$$python" --version 2>&1); then echo "  $$python: $$found"; else echo "  $$python: does not run"; fi; \
	done; \
	echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..."; \
	echo "(On Debian and Ubuntu, venv is a package of its own: apt-get install python3-venv)"; exit 1
