# A thin front for the CMake tree: `make` builds build/bin/rill and, in build/lib, librill and
# librill_train (.so and .a) with Open MPI. Another MPI: make MPICC=/path/to/mpicc
# MPIEXEC=/path/to/mpiexec. The scripts look for Open MPI themselves: make would do so before
# scripts/setup has installed it.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
CMAKE ?= cmake
CMAKE_ARGS ?=
export CMAKE

.PHONY: all configure test test-long test-cuda fuzz bench demo docs install format lint tidy clean
.PHONY: help
all: configure
	@$(CMAKE) --build $(BUILD) --parallel

configure:
	@scripts/configure $(BUILD) $(CMAKE_ARGS)

test:
	@scripts/setup test
	@scripts/test-all quick

test-long:
	@scripts/setup long
	@scripts/test-all long

# On a machine with a GPU: tests to the bit and sanitizers; logs in $(BUILD)/gpu. Skipped elsewhere.
test-cuda:
	@bench/cuda/run $(BUILD) $(BUILD)/gpu --parts build,test,sanitizers --seconds 1200

# Each fuzzer for SECONDS, as scripts/test-all builds them.
SECONDS ?= 300
fuzz:
	@scripts/setup test
	@scripts/configure build-fuzz -DCMAKE_C_COMPILER=clang \
	  -DRILL_FUZZ=ON -DRILL_SANITIZE=fuzzer-no-link,address,undefined '-DRILL_OPTIMIZE=-O3 -g1'
	@$(CMAKE) --build build-fuzz --parallel
	@RILL_FUZZ_SECONDS=$(SECONDS) scripts/test build-fuzz --parts fuzz

demo:
	@scripts/setup build
	@$(MAKE) --no-print-directory all
	@scripts/demo $(BUILD)/bin/rill

docs:
	@scripts/setup docs
	@mkdocs build --strict --quiet
	@echo 'The site: build/site/index.html'

bench: all
	@if [ -x bench/run ]; then bench/run; else echo "There is no bench/run yet." >&2; exit 1; fi

install: all
	@DESTDIR='$(DESTDIR)' $(CMAKE) --install $(BUILD) --prefix '$(PREFIX)'
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then \
	  PATH="$$PATH:/sbin:/usr/sbin" ldconfig; fi

format:
	@git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | \
	  xargs clang-format -i

lint:
	@BUILD='$(BUILD)' scripts/lint

tidy: all
	@git ls-files --cached --others --exclude-standard -- 'src/*.c' 'tools/*.c' | \
	  xargs clang-tidy --quiet -p $(BUILD)

clean:
	@rm -rf build build-*

help:
	@echo 'make            build $(BUILD)/bin/rill; librill and librill_train in $(BUILD)/lib'
	@echo 'make demo       set up this machine, build, show what rill does'
	@echo 'make test       set up this machine, build, test (Open MPI, MPICH, sanitizers, SimGrid)'
	@echo 'make test-long  the same with the long runs, valgrind and longer fuzzing'
	@echo 'make test-cuda  on a machine with a GPU: its tests to the bit, and compute-sanitizer'
	@echo 'make fuzz       fuzz every decoder, each for SECONDS=$(SECONDS)'
	@echo 'make bench      run the benchmarks'
	@echo 'make docs       set up this machine, build the site of docs/ in build/site'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make lint       columns, formatting, includes, shell, Python: what CI checks in sources'
	@echo 'make format, make tidy, make clean'
