# The few commands of everyday work; CMakePresets.json holds the build's settings. PRESET=debug or asan builds and
# tests another variant, in build-debug or build-asan.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files '*.cpp' '*.h')

.PHONY: help setup build test install parity parity-full parity-mutations bench bench-comm fuzz demo format tidy clean

help:  ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup:  ## install what the build needs: Debian packages, libtorch
	@scripts/setup

# set-up touches this file only when it chooses another libtorch; ninja itself sees changes of CMakeLists.txt
.deps/libtorch.path: setup
	@:

$(BUILD)/build.ninja: .deps/libtorch.path CMakePresets.json
	@echo "cmake: configuring $(BUILD)"
	@cmake --preset $(PRESET) -DWEFT_LIBTORCH="$$(cat .deps/libtorch.path)" --log-level=WARNING >/dev/null

build: $(BUILD)/build.ninja  ## build build/weft (PRESET=debug, asan: another variant)
	@cmake --build $(BUILD) --parallel $(JOBS) --target weft

test: $(BUILD)/build.ninja  ## build everything and run every test
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ctest --preset $(PRESET)

PREFIX ?= /usr/local
install: build  ## install weft and libweft, for find_package(weft), in PREFIX=/usr/local
	@cmake --install $(BUILD) --prefix $(PREFIX) >/dev/null
	@echo "installed weft, libweft and its headers in $(PREFIX)"

parity: build  ## the one-curve table: layouts must not change the loss curve
	@build/weft parity tests/parity/table.toml

parity-full: build  ## every combination of the table's choices (hours)
	@build/weft parity tests/parity/table.toml --full

parity-mutations: build  ## drop one sum after the other: each must turn the table red
	@build/weft parity tests/parity/table.toml --mutations

bench: build  ## tokens per second of two ranks by ZeRO stage, beside one process (a quiet machine)
	@bench/data-parallel

bench-comm: build  ## communication on 2 ranks beside a bare MPI program (keep the machine quiet)
	@cmake --build $(BUILD) --target bare_mpi
	@BUILD=$(BUILD) bench/comm

fuzz:  ## fuzz the parsers, FUZZ_SECONDS=60 each (PARSERS="config tokenizer": only these)
	@JOBS=$(JOBS) scripts/fuzz $(PARSERS)

demo: build  ## train a small model on real text and let it write
	@scripts/demo

format:  ## lay out every source by .clang-format
	@clang-format -i $(SOURCES)

tidy:  ## run clang-tidy over what needs no torch
	@git ls-files 'weft/base/*.cpp' 'weft/data/*.cpp' 'apps/*.cpp' | xargs -P $(JOBS) -I{} \
	  clang-tidy --quiet {} -- -std=c++20 -I. '-DWEFT_VERSION=""'

clean:  ## remove what was built (.deps and runs stay)
	@rm -rf build build-debug build-asan build-fuzz
