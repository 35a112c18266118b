# `make run` and `make test` are the two commands of the README.  Each prepares whatever is missing: the virtual
# environment .venv in this directory, the dependencies named in pyproject.toml, and the compiled modules.
#
# Checked, sanitizer and coverage builds work on a copy below build/, so the release build stays as it is.
#
#   PYTHON=python3.12   interpreter for a new .venv (default python3)
#   ARGS="..."          arguments for `wse train` or pytest
#   EXTRAS="test demo"  extras of pyproject.toml that are installed
#   WSE_JOBS=N          parallel compilations (default: one per core), processes of make test, quick and soak (one more)

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Bytecode is made of what is imported, when it is; of everything that is installed it takes longer than installing.
INSTALL := $(PY) -m pip --disable-pip-version-check --quiet install --no-compile
EXTRAS ?= test demo
unexport PYTHONDONTWRITEBYTECODE
RESULTS ?= build/bench

PACKAGES := wse_core fabric memx swarm harness traces wse
COMPILED := wse_core fabric
SOURCES := $(filter-out %/opcodes.pxd %/constants.pxd wse_core/traced_%,$(shell find $(COMPILED) -name '*.pyx' -o -name '*.pxd' -o -name '*.h'))
INPUTS := setup.py wse_core/encoding.py wse_core/isa.py $(SOURCES)
TREE := $(wildcard .ci .gitignore CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE MANIFEST.in Makefile README.md docs pyproject.toml setup.py tests tools $(PACKAGES))

# The stamp alone does not tell whether somebody built another mode in place since.
STAMP := build/release/in-place
TOOLS := $(VENV)/build-requires.txt
LIBRARIES := $(VENV)/requires.txt
IN_PLACE := $(shell sed -n "s/^MODE = '\(.*\)'$$/\1/p" wse_core/_build_info.py 2>/dev/null)
ifneq ($(IN_PLACE),release)
.PHONY: $(STAMP)
endif

# A process per core and one more, since some tests wait; whole files go to one, because their tests share what they
# built.  Benchmarks are not among them.
SPREAD := -n $(or $(WSE_JOBS),$(shell expr $$(nproc) + 1)) --dist loadfile --no-loadscope-reorder --benchmark-disable
SLOW_BUILD := -p no:cacheprovider -m "not packaging" -o timeout=1800

.PHONY: help run test quick soak loaded faults build ready bench checked sanitize races coverage lint lint-tools wheels site clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@echo "make run       train a network on handwritten digits, on two modelled wafers"
	@echo "make test      run the test suite"
	@echo "make quick     run what fits between two edits: no test above half a second, few examples of each property"
	@echo "make soak      run the test suite for hours: a thousand examples of each property, all fixed cases"
	@echo "make loaded    run the test suite ten times beside four busy loops; hours"
	@echo "make faults    plant wrong changes of the source one by one and say how many of them tests see; an hour"
	@echo "make build     prepare .venv and compile, nothing else"
	@echo "make bench     run the benchmarks; JSON goes to build/bench"
	@echo "make checked   run the suite in a build with every run-time check on"
	@echo "make sanitize  run the suite under the address and undefined-behaviour sanitizers"
	@echo "make races     run the tests of threads under the thread sanitizer"
	@echo "make coverage  run the suite in a tracing build and report the covered Cython lines"
	@echo "make lint      check style of Python and Cython sources, form and types of the Python ones"
	@echo "make wheels    build a wheel for each CPython of this machine and try each in an environment of its own"
	@echo "make site      build the documentation as a web site in build/site, with search"
	@echo "make clean     delete everything that was built (not .venv)"
	@echo 'Variables: ARGS="..." for run, test and bench; PYTHON=python3.12 for a new .venv; WSE_JOBS=N'

run: build
	@$(VENV)/bin/wse train digits --wafers 2 --compare 50 --overwrite $(ARGS)

test: build
	@$(PY) -m pytest $(SPREAD) --durations=15 $(ARGS)

quick: build
	@WSE_HYPOTHESIS=$${WSE_HYPOTHESIS:-smoke} $(PY) -m pytest $(SPREAD) -m "not packaging and not slow and not long" $(ARGS)

soak: build
	@WSE_HYPOTHESIS=soak $(PY) -m pytest $(SPREAD) -o timeout=86400 $(ARGS)

loaded: build
	@$(PY) -m tests.loaded $(ARGS)

faults: build
	@$(PY) -m tests.faults $(ARGS)

# Libraries are installed while the modules are compiled, in two jobs of make unless it was told how many.
build:
	@+$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j2) ready

ready: $(VENV)/bin/wse $(STAMP)

$(PY):
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) found; install Python 3.11 or newer, or name one: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) harness/cli/preflight.py
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Lists of what is installed are stamps: each is put in its place after the installation.
$(TOOLS): pyproject.toml | $(PY)
	@$(PY) harness/cli/preflight.py
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip --upgrade >/dev/null
	@echo "==> installing dependencies and compiling (the first time takes a minute or two)"
	@$(PY) harness/cli/preflight.py --build-requires > $@.new
	@$(INSTALL) -r $@.new
	@mv $@.new $@

$(LIBRARIES): $(TOOLS)
	@$(PY) harness/cli/preflight.py --requires dependencies $(EXTRAS) > $@.new
	@$(INSTALL) -r $@.new
	@mv $@.new $@

# The console script doubles as the stamp of the installation; what is compiled by then is not compiled again.
$(VENV)/bin/wse: $(LIBRARIES) | $(STAMP)
	@WSE_BUILD=release $(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(STAMP): $(TOOLS) $(INPUTS)
	@echo "==> compiling what changed"
	@WSE_BUILD=release $(PY) setup.py --quiet build_ext --inplace
	@mkdir -p $(@D) && touch $@

bench: build
	@mkdir -p $(RESULTS)
	@$(PY) -m pytest -W default tests/bench --benchmark-only --benchmark-json=$(RESULTS)/latest.json $(ARGS)
	@echo "==> results in $(RESULTS)/latest.json"

# $(call copy_tree,MODE): bring build/tree-MODE up to date and compile there.  Files keep their times, so that only
# what changed is compiled; extension modules and the generated C of an earlier build stay.
define copy_tree
	@echo "==> $(1) build in build/tree-$(1)"
	@mkdir -p build/tree-$(1)
	@find build/tree-$(1) -path build/tree-$(1)/build -prune -o -type f ! -name '*.so' ! -name '*.c' \
	    ! -name opcodes.pxd ! -name constants.pxd ! -name 'traced_*' ! -name _build_info.py -print0 | xargs -0 -r rm -f
	@tar --exclude='*.so' --exclude='*.c' --exclude=opcodes.pxd --exclude=constants.pxd --exclude='traced_*.p[yx][xd]' --exclude=_build_info.py --exclude=__pycache__ \
	    -cf - $(TREE) | tar -C build/tree-$(1) -xf -
	@cd build/tree-$(1) && WSE_BUILD=$(1) $(CURDIR)/$(PY) setup.py --quiet build_ext --inplace
endef

checked: $(VENV)/bin/wse
	$(call copy_tree,checked)
	@cd build/tree-checked && WSE_HYPOTHESIS=$${WSE_HYPOTHESIS:-quick} $(CURDIR)/$(PY) -m pytest $(SLOW_BUILD) $(ARGS)

# Capturing is left to Python level so that a report of the sanitizers reaches the terminal when they end the process.
# The C++ runtime is loaded early because the sanitizer looks for its exceptions once, at the start; libraries that
# come in later, such as matplotlib's, throw them.
sanitize: $(VENV)/bin/wse
	$(call copy_tree,sanitize)
	@cd build/tree-sanitize && WSE_HYPOTHESIS=$${WSE_HYPOTHESIS:-quick} PYTHONMALLOC=malloc \
	    LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so) $$($${CC:-gcc} -print-file-name=libstdc++.so.6)" \
	    ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:allocator_may_return_null=1 \
	    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	    $(CURDIR)/$(PY) -m pytest $(SLOW_BUILD) --capture=sys $(ARGS)

# Threads of the host meet in the bands of a fabric and in the wafers of a system; the rest of the suite has one.
# Address randomisation is off because the sanitizer's shadow has fixed places.
RACING := tests/fabric/test_bands.py tests/swarm/test_system.py

races: $(VENV)/bin/wse
	$(call copy_tree,races)
	@cd build/tree-races && WSE_HYPOTHESIS=$${WSE_HYPOTHESIS:-quick} OPENBLAS_NUM_THREADS=1 \
	    LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libtsan.so)" TSAN_OPTIONS=halt_on_error=0:exitcode=66 \
	    setarch -R $(CURDIR)/$(PY) -m pytest $(SLOW_BUILD) --capture=sys $(or $(ARGS),$(RACING))

# Tracing makes compiled lines tens of times slower, so only the tests that are about compiled modules run.
COVERING := tests/wse_core tests/fabric --ignore=tests/fabric/kernels --ignore=tests/harness/validation

coverage: $(VENV)/bin/wse
	$(call copy_tree,coverage)
	@cd build/tree-coverage && WSE_HYPOTHESIS=$${WSE_HYPOTHESIS:-smoke} $(CURDIR)/$(PY) -m coverage run -m pytest \
	    $(SLOW_BUILD) -m "not packaging and not slow" $(COVERING) $(ARGS)
	@cd build/tree-coverage && $(CURDIR)/$(PY) -m coverage report --include='*.pyx'

lint-tools: $(LIBRARIES)
	@$(PY) -c "import ruff, cython_lint, mypy" 2>/dev/null || { \
	    $(PY) harness/cli/preflight.py --requires dev > $(VENV)/lint-requires.txt && \
	    $(INSTALL) -r $(VENV)/lint-requires.txt; }

lint: lint-tools
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cython-lint $(filter %.pyx %.pxd,$(SOURCES))
	@$(PY) -m mypy
	@$(PY) -m tools.sizes

# Each wheel is compiled from the source distribution; some two minutes each.
wheels: $(TOOLS)
	@$(PY) -m tools.release.wheels $(ARGS)

site: $(VENV)/bin/wse
	@$(PY) -c "import material" 2>/dev/null || { \
	    $(PY) harness/cli/preflight.py --requires site > $(VENV)/site-requires.txt && \
	    $(INSTALL) -r $(VENV)/site-requires.txt; }
	@$(PY) -m tools.docs.site $(ARGS)
	@echo "==> build/site/index.html; for its search: $(PY) -m http.server --directory build/site"

clean:
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage .benchmarks
	@rm -f wse_core/opcodes.pxd wse_core/constants.pxd wse_core/traced_*.pyx wse_core/traced_*.pxd wse_core/traced_*.c wse_core/_build_info.py
	@find $(PACKAGES) tests -name '*.so' -exec rm -f {} +
	@find $(PACKAGES) tests tools -name __pycache__ -prune -exec rm -rf {} +
	@for f in $(SOURCES:.pyx=.c); do case $$f in *.c) rm -f $$f;; esac; done
