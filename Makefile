# The commands for users and developers: `make demo` runs the main job on a real store, `make test` runs the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_SIZE ?= 1GiB
BENCH_FOLDER ?= /tmp/spark-mq-bench
TEST_PROCESSES ?= 3
# Tests with brokers, clusters and servers wait for them most of the time, those of `make test` for Spark now and then.
REST_PROCESSES ?= 4
REST := broker or archive or cluster or notebook or shared or s3 or hdfs
# To collect all files takes each process of a run 15 seconds: these have a test that REST selects.
REST_FILES = $(sort $(shell grep -rlE 'pytest\.mark\.(broker|archive|cluster|notebook|s3|hdfs)|marked_stores' tests --include='test_*.py'))
SHORT := not broker and not archive and not cluster and not notebook and not shared and not s3 and not hdfs
# Per cent of the kernels' lines that their tests run: less is an error.
KERNEL_COVERAGE ?= 80
# All test files that have a long form, some of them by the stores that they get.
LONG_TESTS = $(shell grep -rlE 'support\.soak|SPARK_MQ_SOAK|usual_stores' tests --include='test_*.py') \
	tests/source/test_topic_paths.py
STORE ?= $(SPARK_MQ_STORE)
BROKER_CONF ?= $(SPARK_MQ_BROKER_CONF)
CLASSES := $(VENV)/spark.jsa
PAGES := dist/notebooks
EXECUTED := $(if $(KEEP),notebooks,$(PAGES))
TO_PAGES := $(BIN)/python -m nbconvert --log-level ERROR --to html --output-dir $(PAGES)
SHOW_PAGES := printf 'To open in a browser:\n'; ls -1 $(CURDIR)/$(PAGES)/*.html
absolute = $(if $(or $(findstring ://,$1),$(filter /%,$1)),$1,$(if $1,$(CURDIR)/$1))
COMPAT_FOLDER ?= /tmp/spark-mq-compat
# For each decoder.
FUZZ_SECONDS ?= 3600

.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/installed java ## create .venv with the package in it, and install Java if it is missing

$(VENV)/installed: setup.cfg pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

lock: ## write requirements.lock again: the newest versions that setup.cfg allows, with the hashes of their files
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet uv
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --generate-hashes \
	--no-annotate --custom-compile-command 'make lock' --output-file requirements.lock setup.cfg

$(CLASSES): $(VENV)/installed tests/support/class_archive.py | java
	-$(BIN)/python -m tests.support.class_archive

java: # Spark needs Java 17 or later
	@conf/find-java

demo: install ## rebuild the files of a real broker's store, and compare them with the broker's
	$(BIN)/python jobs/demo.py

prepare: install ## compile the kernels, and archive Spark's Java classes, for a quicker start
	$(BIN)/spark-mq compile
	$(MAKE) $(CLASSES)

test: install ## run the tests
	$(BIN)/spark-mq compile & \
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=4 -m '$(SHORT)'

test-kernels: install ## run the tests of the kernels, as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile tests/format/kernels \
	--cov=spark_mq.format.kernels --cov-report=term:skip-covered --cov-fail-under=$(KERNEL_COVERAGE)

coverage: install ## run the tests of `make test` once more, and say which lines of the package they do not run
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m '$(SHORT)' \
	--cov=spark_mq --cov-report=term:skip-covered

test-rest: $(CLASSES) ## run all tests that `make test` leaves out, and write dist/notebooks/*.html
	rm -rf $(PAGES)
	SPARK_MQ_KEEP_OUTPUTS=$(PAGES) $(BIN)/python -m pytest -q -n $(REST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=4 \
	-m '$(REST)' $(REST_FILES)
	$(TO_PAGES) $(PAGES)/*.ipynb

test-broker: $(CLASSES) ## let real brokers serve the files that were built here (needs Maven)
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m broker

test-stores: $(CLASSES) ## compare the rebuilt files of the larger real stores with the brokers' (needs ../shared/stores)
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) -m shared

test-archive: $(CLASSES) ## test archives, which are Delta tables (needs Maven Central)
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m archive

test-s3: $(CLASSES) ## test stores and archives on S3, with a real server (needs Maven)
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m s3

test-hdfs: $(CLASSES) ## test stores on HDFS, with a real cluster in one process (needs Maven)
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m hdfs

test-cluster: $(CLASSES) ## run commands (also killed ones), a Spark cluster, Spark Connect, and the commands of README.md and docs/
	$(BIN)/python -m pytest -q -m cluster

notebooks: install ## run the notebooks and write dist/notebooks/*.html; STORE=/data/store: of your store; KEEP=1: save results
	rm -rf $(PAGES)
ifeq ($(STORE),)
	SPARK_MQ_KEEP_OUTPUTS=$(EXECUTED) $(BIN)/python -m pytest -m notebook
	$(TO_PAGES) $(EXECUTED)/*.ipynb
	@$(SHOW_PAGES)
else
	export SPARK_MQ_STORE='$(call absolute,$(STORE))' SPARK_MQ_BROKER_CONF='$(call absolute,$(BROKER_CONF))'; \
	for notebook in notebooks/*.ipynb; do $(TO_PAGES) --execute $$notebook || failed=1; done; \
	$(SHOW_PAGES); test -z "$$failed"
endif

compat: install ## try other versions of Spark and Python, and write the README's table of them
	$(BIN)/python -m tests.compat.run --folder $(COMPAT_FOLDER)

compat-brokers: install ## try brokers of every release, and write the README's table of them (needs Maven)
	$(BIN)/python -m tests.compat.brokers --folder $(COMPAT_FOLDER)/brokers

stores: install ## create tests/stores again with real brokers (needs Maven)
	$(BIN)/python -m tests.broker.make_stores
	$(BIN)/python -m tests.broker.make_filter_cases

zip: ## write dist/spark_mq.zip, the package for spark-submit --py-files
	$(PYTHON) jobs/make_zip.py

lint: install ## run ruff, codespell and mypy, and check the layers of the package
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@! grep -rnE "^(from|import) tests[.a-z_]*\.test_" tests benchmarks || { echo "a test module imports a test module: move what they share to tests/support"; exit 1; }

dist: install ## build the wheel and the sdist into dist/, and try the wheel in an empty environment without Java
	rm -f dist/spark_mq-*
	$(BIN)/python -m build --outdir dist
	.ci/try-wheel

site: install ## write dist/site, the site of all pages; a warning or a broken link is an error
	$(BIN)/python docs/build_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file build/mkdocs.yml

audit: ## look for known weaknesses of the packages in requirements.lock (needs the database of PyPI)
	rm -rf build/audit && $(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

bench: install ## measure on a generated store of BENCH_SIZE (1GiB)
	$(BIN)/python -m benchmarks.run --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.scans --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.streams --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.live --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.cold --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.verify --size $(BENCH_SIZE) --folder $(BENCH_FOLDER) --damaged
	$(BIN)/python -m benchmarks.archive --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.restore --size $(BENCH_SIZE) --folder $(BENCH_FOLDER) --broker
	$(BIN)/python -m benchmarks.lifecycle --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.topics --size $(BENCH_SIZE) --folder $(BENCH_FOLDER)
	$(BIN)/python -m benchmarks.object_storage --folder $(BENCH_FOLDER)

soak: install ## run the long forms of some tests, and measure the memory of full-size index files
	SPARK_MQ_SOAK=1 $(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile $(LONG_TESTS)
	$(BIN)/python -m benchmarks.index_memory --files 1 --folder $(BENCH_FOLDER)/memory
	$(BIN)/python -m benchmarks.index_memory --files 3 --folder $(BENCH_FOLDER)/memory
	$(BIN)/python -m benchmarks.index_memory --files 3 --key-size 1 --folder $(BENCH_FOLDER)/memory
	SPARK_MQ_FOLLOW_SECONDS=300 SPARK_MQ_LAG_SECONDS=15 $(BIN)/python -m pytest -s tests/broker/test_following.py
	$(MAKE) compat-brokers
	$(MAKE) fuzz

fuzz: install ## fuzz each decoder under coverage guidance for FUZZ_SECONDS (3600); needs .venv/bin/pip install -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

clean: ## remove .venv and the files that the commands above created
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache

.PHONY: help install lock java prepare demo test test-rest test-kernels test-stores test-archive test-broker test-s3 test-hdfs test-cluster notebooks compat compat-brokers stores zip lint dist site bench audit soak fuzz clean
