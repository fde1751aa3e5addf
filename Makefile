# What a person types. CMake (see CMakePresets.json) does the work; every target can be run again and costs little then.
#   make KULLBACK_TORCH=FOLDER   uses a LibTorch that you have instead of the one on PyPI
#   make JOBS=8                  runs so many compilers at once (default: one a core)

.DEFAULT_GOAL := build
.PHONY: help deps configure build everything test demo bench docs format lint install asan valgrind fuzz clean

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
MODEL := smollm2-135m-instruct
CONFIGURE := cmake $(if $(KULLBACK_TORCH),-DKULLBACK_TORCH="$(KULLBACK_TORCH)") --log-level=WARNING --preset

help:  ## show this
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

deps:  ## install the Debian packages that are missing (as root or with sudo)
	@tools/install_deps.sh

configure:
	@command -v cmake ninja >/dev/null || { echo "make: cmake or ninja is missing; 'make deps' installs what is needed" >&2; exit 2; }
	@$(CONFIGURE) release >/dev/null

build: configure  ## build the program build/kullback (fetches LibTorch once); the default
	@cmake --build --preset release -j $(JOBS) --target kullback_cli

everything: configure  ## build the program, the tests and the benches
	@cmake --build --preset release -j $(JOBS)

test: deps  ## build and run every test
	@$(MAKE) --no-print-directory everything
	build/kullback pull $(MODEL)
	ctest --preset release -j $(JOBS)

demo: deps  ## from nothing to an aligned model and its report
	@$(MAKE) --no-print-directory build
	build/kullback pull $(MODEL)
	rm -rf runs/demo
	build/kullback align --method dpo --model $(MODEL) --data data/direct-answers/train.jsonl \
	  --eval-data data/direct-answers/heldout.jsonl --max-steps 48 --output runs/demo

bench: everything  ## run the benches, and write the head's table into docs/
	build/kullback pull $(MODEL)
	build/bench/head --table docs/head-measured.md
	@for bench in $(filter-out build/bench/head,$(wildcard build/bench/*)); do [ ! -x "$$bench" ] || "$$bench" || exit 1; done

docs: deps build  ## build the documentation into site/
	@tools/build_docs.sh

format:  ## lay out the sources with clang-format
	@tools/lint.sh --format

lint:  ## check layout and run clang-tidy (LINT_ALL=1: on every file)
	@tools/lint.sh

install: build  ## install the program, the library and its CMake package under PREFIX (/usr/local)
	cmake --install build --prefix "$(PREFIX)"

# Rooms whose fast tests run under the sanitizers; those of the rooms with tensors are in `make asan SANITIZED="..."` too.
SANITIZED ?= base text io report
asan:  ## run fast tests under the address and undefined-behaviour sanitizers
	@$(CONFIGURE) asan >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target $(SANITIZED:%=%_test)
	@for room in $(SANITIZED); do build-asan/$${room}_test --gtest_brief=1 --gtest_filter='-*Slow*' || exit 1; done

valgrind: configure  ## run the tests of the vector code under Valgrind
	@cmake --build --preset release -j $(JOBS) --target divergence_test
	@tools/valgrind.sh build/divergence_test

fuzz:  ## run each fuzzer for SECONDS (20)
	@tools/fuzz.sh $(SECONDS)

clean:  ## remove what was built (the cache folder and runs/ stay)
	rm -rf build build-debug build-asan build-fuzz build-lint site
