# Two commands do everything on a fresh machine: `make demo` and `make test`.  The others are for developers.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 $(BIN)/python -m pip install --quiet
UV := uv==0.13.9
KERNEL := $(wildcard $(addprefix core/klog/kernel/*.,pyx pxi pxd h))

.PHONY: help demo test build dev lint format lock bench fuzz completions docs tested coverage mutants dist release one-file test-one-file clean

help:                ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build          ## build klog, then look at real broker data in fixtures/
	@tools/demo.sh

test: dev            ## every test, against real Kafka too (ARGS="-k name" narrows)
	@tools/test.sh $(ARGS)

build: .venv/built   ## an editable install in .venv, kernel compiled in place

dev: .venv/dev .venv/built

lint: dev            ## ruff, mypy --strict, the layer test; shell scripts, workflows, the image recipe, commit messages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck --severity warning --external-sources --source-path SCRIPTDIR release/*.sh tools/*.sh \
	    tests/release/*.sh .ci/run
	$(BIN)/zizmor --quiet --offline --persona pedantic .github
	$(BIN)/hadolint release/Containerfile
	$(BIN)/mypy --strict
	$(BIN)/python -m tools.check_commits
	$(BIN)/python -m pytest -q tests/test_layers.py

format: dev          ## ruff format and the fixes it is sure of
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: dev           ## klog beside its peers (ARGS="--quick"); see bench/README.md
	@tools/machine.sh kafka || true
	$(BIN)/python -m bench $(ARGS)

fuzz: dev            ## damaged input into a kernel built with sanitizers (ARGS="--seconds 600")
	$(BIN)/python -m tests.fuzz $(ARGS)

completions: dev     ## completions/, docs/klog.1, docs/findings.md, docs/schemas and docs/pictures, from klog itself
	$(BIN)/python -m tools.make_completions
	$(BIN)/python -m tools.make_man
	$(BIN)/python -m tools.make_findings
	$(BIN)/python -m tools.make_pictures
	$(BIN)/python -m tools.make_browse_pictures
	$(BIN)/python -m tools.json_fields

tested: dev          ## docs/tested.md, from what every test counts while it runs; with branches and mutants, an hour
	@rm -rf build/counts
	KLOG_COUNTS=$(CURDIR)/build/counts tools/test.sh
	KLOG_COUNTS=$(CURDIR)/build/counts $(BIN)/python -m tests.coverage -n "$$(nproc)" --dist loadfile
	KLOG_COUNTS=$(CURDIR)/build/counts $(BIN)/python -m tests.mutation --jobs "$$(nproc)"
	$(BIN)/python -m tools.make_tested build/counts

coverage: dev        ## branches that tests take, in klog's Python and in its kernel (ARGS="tests/change/plan")
	$(BIN)/python -m tests.coverage $(ARGS)

mutants: dev         ## small mistakes in verify, recover, plan, compact: which does no test see (ARGS="--package plan")
	$(BIN)/python -m tests.mutation $(ARGS)

docs: dev            ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

dist: dev            ## sdist and wheel in dist/
	$(BIN)/python -m build --no-isolation

release: build       ## dist/: klog and its Python in one static file, for x86_64 and aarch64; archives, packages, wheels, SHA256SUMS
	@tools/machine.sh release
	@tools/machine.sh packages
	@release/all.sh

one-file: build      ## dist/klog-VERSION-linux-x86_64 alone
	@tools/machine.sh release
	@release/one_file.sh

test-one-file: dev   ## that file in an empty root, beside the package; `make one-file` comes before
	$(BIN)/python -m pytest -q -m release -n 2 tests/release/test_one_file.py tests/release/test_surroundings.py \
	    tests/release/test_tls_brokers.py

lock:                ## requirements.lock: today's newest versions that fit pyproject.toml, for every supported Python
	@tools/machine.sh build
	rm -rf build/lock && "$$(tools/machine.sh python)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet $(UV)
	build/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --upgrade --extra dev \
	    --annotation-style line --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

clean:               ## all that was built, .venv included
	rm -rf .venv build dist site core/*.egg-info *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f core/klog/kernel/*.so core/klog/kernel/*.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made:
	@tools/machine.sh build
	@python=$$(tools/machine.sh python) && echo "setting up .venv with $$python" && "$$python" -m venv --clear .venv
	@touch $@

# What klog needs, to be built and to run.  The two targets below install nothing else of it: they may run side by side.
.venv/needs: .venv/made requirements.lock pyproject.toml
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' | \
	    $(PIP) --constraint requirements.lock --requirement /dev/stdin setuptools Cython
	@touch $@

# Everything in the lock, by its exact version.
.venv/dev: .venv/needs requirements.lock
	@echo "installing the developers' tools"
	@$(PIP) --requirement requirements.lock
	@touch $@

# The .pth file names the two source roots: the import hook that setuptools puts there costs 15 ms at every start.
.venv/installed: .venv/needs requirements.lock pyproject.toml setup.py
	@echo "installing klog in .venv (half a minute)"
	@$(PIP) --no-deps --no-build-isolation --editable .
	@printf '%s\n' "$(CURDIR)/core" "$(CURDIR)/cli" | tee .venv/lib/python*/site-packages/__editable__.klog-*.pth >/dev/null
	@touch $@

# Only the parts of the kernel whose sources have changed are compiled.
.venv/built: .venv/installed $(KERNEL)
	@mkdir -p build
	@$(BIN)/python setup.py --quiet build_ext --build-lib core --build-temp build/kernel >build/kernel.log 2>&1 || { cat build/kernel.log; exit 1; }
	@touch $@
