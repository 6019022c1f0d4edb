# make serve    start everything on this machine, Ctrl-C stops it
# make test     lint, types and all tests
# make lint     lint and types
# make clean    remove what the others made
#
# serve takes PORT, HOST, PROFILE and ARGS (see: .venv/bin/python -m omni.launch --help), or OMNI_* from the
# environment. PYTHON is the Python 3.11 to make the environment with.

.DEFAULT_GOAL := serve
.PHONY: serve test lint clean
.DELETE_ON_ERROR:

PYTHON ?=
ARGS ?=
TESTS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# An option only where make was given the variable: HOST in particular is set in many a shell.
given = $(if $(filter command,$(firstword $(origin $1))),--$2 '$($1)')

serve: .venv/.serve
	@exec $(BIN)/python -m omni.launch serve $(call given,HOST,host) $(call given,PORT,port) \
		$(call given,PROFILE,profile) $(ARGS)

test: lint
	$(BIN)/python -m pytest -x -q $(TESTS)

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .omni .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@for python in $(or $(PYTHON),python3.11 python3); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "omni needs Python 3.11, and found none under: $(or $(PYTHON),python3.11 python3). Try make PYTHON=/path/to/python3.11" >&2; \
		exit 1; \
	fi; \
	if ! "$$found" -m venv .venv; then \
		rm -rf .venv; \
		echo "omni needs Python's venv module (Debian and Ubuntu: apt install python3.11-venv)" >&2; \
		exit 1; \
	fi

.venv/.serve: pyproject.toml omni/launch/triton.txt | .venv/bin/python
	@echo "Installing omni and the embedded Triton into .venv (the first time, this takes a minute or two)"
	@$(PIP) --editable '.[frontend,embedded]'
	@$(PIP) --no-deps --requirement omni/launch/triton.txt || { \
		echo "The embedded Triton is built for x86-64 Linux with glibc 2.35 or later" \
			"(Ubuntu 22.04, Debian 12, Fedora 36 and their successors); elsewhere, use Docker." >&2; \
		exit 1; \
	}
	@touch $@

.venv/.test: .venv/.serve
	@echo "Installing the test tools into .venv"
	@$(PIP) --editable '.[frontend,embedded,test]'
	@touch $@
