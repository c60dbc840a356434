# The front door. CMake and Ninja do the work behind it; `make help` lists what can be asked for.
#   SAN=address,undefined   build and test with sanitizers (also SAN=thread), in a build folder of its own
#   CC=clang                another compiler
#   BENCH=pattern           with `make bench`: only the rows whose name matches
SAN    ?=
comma  := ,
BUILD  := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
PREFIX ?= /usr/local

.PHONY: help configure build run check test bench install dist fmt clean coverage docs pictures gpu-bundle rl
help:
	@echo "make run      install what is missing, build, train the quick-start model and talk to it"
	@echo "make check    for every edit, a minute: format, floors, names, ratchets, lint, quick tests"
	@echo "make test     install what is missing, build and run every test"
	@echo "make bench    measure, compared with what you would use instead (BENCH=pattern for a part)"
	@echo "make build    build/ashlar (SAN=address,undefined or SAN=thread for a sanitizer build)"
	@echo "make gpu-bundle  a folder for a machine with a GPU: programs, kernels, tests, benchmarks (build-gpu/bundle)"
	@echo "make install  program, libraries, headers, man page and completions, into PREFIX (now $(PREFIX))"
	@echo "make dist     the last commit as build/dist/ashlar-VERSION.tar.gz"
	@echo "make coverage line and branch coverage of the test suite"
	@echo "make docs     write what the documentation takes from the program and from scripts: reference, figures, history"
	@echo "make pictures take the pictures of the documentation from a run (minutes; needs Chromium and Node.js)"
	@echo "make fmt      format the sources;  make clean  remove the build folders"

configure:
	@scripts/deps.sh build
	@cmake -S . -B $(BUILD) -G Ninja -DASHLAR_SANITIZE=$(SAN) $(if $(filter command environment,$(origin CC)),-DCMAKE_C_COMPILER=$(CC)) > /dev/null

build: configure
	@cmake --build $(BUILD)

run: configure
	@cmake --build $(BUILD) --target ashlar
	@scripts/quickstart.sh $(BUILD)/ashlar

rl: configure
	@cmake --build $(BUILD) --target ashlar
	@scripts/rl.sh $(BUILD)/ashlar

check: build
	@scripts/check.sh $(BUILD)

test:
	@scripts/deps.sh test
	@scripts/test.sh "$(SAN)"

bench: build
	@scripts/bench.sh "$(BENCH)"

coverage:
	@scripts/deps.sh test
	@scripts/coverage.sh

docs: configure
	@cmake --build $(BUILD) --target ashlar > /dev/null
	@scripts/reference.sh $(BUILD)/ashlar docs/reference
	@scripts/figures.py docs/figures
	@scripts/dashboards.py deploy/grafana
	@bench/history/plot.py bench/history docs/figures/performance-history.svg
	@bench/history/table.py bench/history docs/performance-rows.md

pictures: configure
	@cmake --build $(BUILD) --target ashlar standin_nvml > /dev/null
	@scripts/pictures.sh $(BUILD) docs

gpu-bundle:
	@scripts/gpu_bundle.sh

install: configure
	@cmake --build $(BUILD) --target installable
	@cmake --install $(BUILD) --prefix $(PREFIX)

dist:
	@scripts/dist.sh

fmt:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	@rm -rf build build-*
