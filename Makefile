# `make demo` and `make test` set up everything they need in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two at a time: most tests keep one processor busy.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile \
	--no-loadscope-reorder --durations 10

.PHONY: demo demo-page test test-fast test-extras reproduce quality looks bench lint format clean

demo: $(STAMP)
	$(BIN)/cofuse demo --output demo --overwrite

# The page, with the sample stack at hand; it opens in the browser, Ctrl-C stops it.
demo-page: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[web]"
	$(BIN)/cofuse serve --demo

# Seconds that tests may take on two processors without other work; the run ends with what it took.
test: lint
	$(PYTEST) --budget 600

test-fast: $(STAMP)
	$(PYTEST) --budget 180 -m "not slow"

# The tests that `make test` skips for want of torch, onnx, rawpy or pillow-heif, and no others.
test-extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[dev,bench,gpu,raw]"
	COFUSE_REQUIRE="$$COFUSE_REQUIRE torch onnx rawpy pillow_heif" $(PYTEST) -m extra

# make reproduce DATA=folder-of-the-collections, or ARGS="--quick --simulated" without any
reproduce: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m experiments.reproduce $(if $(DATA),--data $(DATA)) $(ARGS)

# make quality DATA=folder-of-the-collections: the tables of docs/quality.md
quality: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m experiments.quality $(if $(DATA),--data $(DATA)) $(ARGS)

# make looks DATA=folder-of-the-collections: real stacks, a table and a sheet of crops of each
looks: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m experiments.looks $(if $(DATA),--data $(DATA)) $(ARGS)

# make bench ARGS=--quick: the tables of docs/performance.md, at small size in some minutes
bench: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.peers $(ARGS)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.scaling $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "cofuse needs Python 3.11 or newer; run make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,bench]"
	@touch $(STAMP)

clean:
	rm -rf $(VENV) demo results .pytest_cache .mypy_cache .ruff_cache .hypothesis
