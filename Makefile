# The two commands of a newcomer are `make demo` and `make test`; both set up their own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is made when a module is first imported, which is far less than all of torch.
INSTALL := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
# Tests that read real data find it here; without it they make small data of their own.
ifneq ($(wildcard ../shared/data),)
export RARECALL_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo serve tables test test-slow torture lint format docs bench sanitize setup clean

demo: $(VENV)/library
	$(BIN)/rarecall demo --out demo.png
ifneq ($(wildcard $(RARECALL_DATA)/omniglot/*.zip),)
	$(BIN)/python -m experiments.omniglot demo --out omniglot-demo.png
endif
	@echo "Now teach it yourself, in the browser: make serve"

# A page to teach it: drawings, text and pictures.
serve: $(VENV)/served
	$(BIN)/rarecall serve --demo

# The paper's three tables beside ours, from results/; learning curves and other plots go to plots/.
tables: $(VENV)/library
	$(BIN)/python -m experiments.tables --plots plots

test: setup lint
	$(BIN)/pytest

test-slow: setup
	$(BIN)/pytest -m slow

# Folders killed, stopped at every write and damaged, for about a quarter of an hour; `make test` does it in short.
torture: setup
	$(BIN)/python -m tests.store.torture --kills 1000 --stops 40 --flips 5000 --out results/kept-torture.json

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The C++ tests, without Python, under the sanitizers for memory, undefined behaviour and threads.
sanitize:
	native/tests/run.sh address,undefined
	native/tests/run.sh thread

# The documentation site, in site/: broken links and references are errors.
docs: setup
	$(INSTALL) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup
	$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks

setup: $(VENV)/installed

# torch comes first and by itself: what is pinned in constraints.txt is then found installed by all that need it.
$(VENV)/torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	touch $@

# What the demo needs.
$(VENV)/library: $(VENV)/torch pyproject.toml setup.py $(wildcard native/*/*)
	$(INSTALL) --editable '.[experiments]'
	touch $@

# What the page needs.
$(VENV)/served: $(VENV)/torch pyproject.toml setup.py $(wildcard native/*/*)
	$(INSTALL) --editable '.[serve,text,images]'
	touch $@

# What developing needs besides.
$(VENV)/installed: $(VENV)/library
	$(INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
