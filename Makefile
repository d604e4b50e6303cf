# Targets for people and for .ci/run. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The product, the lab and the stand-in k3s are modules of their own, so that
# the product's graph holds neither Kubernetes' servers nor a second etcd.
# Wildcards keep this file true in a checkout that lacks one of them.
MODULES := $(patsubst %/,%,$(dir $(wildcard go.mod lab/go.mod lab/standin/go.mod)))

# The linter is pinned in tools/go.mod and built once per version of it and of
# Go, outside the checkout: it takes some minutes on two cores.
CACHE        := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/regrade
LINT_VERSION := $(shell sed -n 's|.*golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' tools/go.mod)
LINT         := $(CACHE)/golangci-lint-$(LINT_VERSION)-$(shell go env GOVERSION)

# RUN picks scenarios by name, LONG=1 is for those that fill a probe window,
# LAB=off leaves the lab out.
RUN      ?= .
LONG     ?=
LAB      ?=
FUZZTIME ?= 10s
LAB_TIMEOUT ?= 75m
# Clusters side by side: one takes two cores and 8 GiB when it starts. With more of them
# etcd and the API servers wait for a processor, and what is seen is the machine's fault.
LAB_AT_ONCE ?= $(shell n=$$(( $$(nproc) / 2 )); echo $$(( n > 1 ? n : 1 )))

export LONG

# One way to compile for everything, that of the shipped binary. With a C
# compiler on the machine Go would otherwise compile Kubernetes once more.
export CGO_ENABLED := 0

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make lab RUN=swap_native   scenarios whose name matches"
	@echo "  make lab LONG=1            probe windows at full length"
	@echo "  make test LAB=off          where the lab cannot run"

## ---- checks ----------------------------------------------------------------

.PHONY: check
check: fmt vet imports generated lint ## gofmt, vet, import rule, generated pages, golangci-lint

.PHONY: fmt
fmt:
	@bad="$$(gofmt -l .)"; [ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }

# vet and the linter walk all that a package depends on. In the stand-in's
# packages that link Kubernetes' servers that is Kubernetes, well over ten
# minutes; those are compiled and tested only.
CHECKED = $(if $(filter lab/standin,$(1)),$$(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep -v ' k8s.io/kubernetes' | cut -d' ' -f1),./...)

.PHONY: vet
vet:
	@$(foreach m,$(MODULES),echo "vet $(m)"; (cd $(m) && nice go vet $(call CHECKED,$(m)));)

.PHONY: imports
imports: ## The import rule alone
	@go test -count=1 ./internal/importrule

.PHONY: generated
generated: ## Pages made from code, and pages held against code, are current
	@go test -count=1 ./docs
	@out="$$(go test -count=1 -v -run '^TestDiagramIsCurrent$$' ./internal/swap)" || { echo "$$out"; exit 1; }; \
	  grep -q '^--- PASS: TestDiagramIsCurrent' <<<"$$out" || { echo "TestDiagramIsCurrent did not run"; exit 1; }

.PHONY: lint
lint: $(LINT) ## golangci-lint over all modules
	@$(foreach m,$(MODULES),echo "lint $(m)"; (cd $(m) && nice $(LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml $(if $(filter lab/standin,$(m)),$$(go list -f '{{.Dir}} {{join .Deps " "}}' ./... | grep -v ' k8s.io/kubernetes' | cut -d' ' -f1),./...));)

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION), once"
	@mkdir -p $(@D)
	@nice go -C tools build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: lint-tool
lint-tool: $(LINT)

## ---- tests -----------------------------------------------------------------

.PHONY: test
test: LAB_FLAGS += -short
test: unit lab ## Everything: unit, property, sim and lab tests; the lab's long scenarios in their short form

.PHONY: unit
unit: ## Unit, property and sim tests of all modules, without the lab
	@for m in $(MODULES); do echo "test $$m"; (cd $$m && LAB=off nice go test -vet=off $$(go list ./... | grep -v '/lab/scenarios')); done
	@go -C tools test ./cmd/...
	@nice go -C tools/monitoring test -vet=off ./...
	@nice go -C tools/compose test -vet=off ./...
	@nice go -C tools/chart test -vet=off ./...
	@nice go -C tools/release test -vet=off ./...

.PHONY: race
race: ## Unit tests of the product under the race detector (needs a C compiler)
	@CGO_ENABLED=1 nice go test -race -vet=off ./...

.PHONY: lab-setup
lab-setup: ## Install the Debian packages of the lab (root) and say whether it can run here
	@cd lab && go run ./cmd/lab-setup

.PHONY: lab
ifeq ($(LAB),off)
lab:
	@echo "lab: left out, LAB=off is set"
else
# One stream of results, one closing line. A go command that fails before it
# can say so in the stream (a broken go.mod, say) is put into it as a failure.
# -vet=off here and above: `make check` vets, and `go test` would read all of
# Kubernetes for it once more.
lab: lab-setup ## Scenarios on real hosts [RUN=regexp] [LONG=1]
	@{ (cd lab && nice go test -vet=off ./... -run '$(RUN)' -count=1 -p 1 -parallel $(LAB_AT_ONCE) $(LAB_FLAGS) -timeout $(LAB_TIMEOUT) -json) || echo '{"Action":"fail","Package":"lab"}'; \
	   (cd lab/standin && nice go test -vet=off -tags live ./k3s/live -run '$(RUN)' -count=1 -timeout 20m -json) || echo '{"Action":"fail","Package":"lab/standin"}'; } \
	 | go -C $(CURDIR)/tools run ./cmd/closing
endif

.PHONY: bench
bench: ## Benchmarks of the decision and other figures (docs/figures.md)
	@go test -run '^$$' -bench . -benchmem $$(grep -rl --include='*_test.go' '^func Benchmark' internal cmd | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME (10s)
	@grep -rho --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' internal cmd lab -H | sed 's|^\(.*\)/[^/]*_test.go:func |\1 |' | sort -u | \
	while read -r dir name; do \
	  case $$dir in lab/standin/*) m=lab/standin;; lab/*) m=lab;; *) m=.;; esac; \
	  rel=$${dir#$$m/}; echo "fuzz $$dir $$name"; \
	  (cd $$m && go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./$$rel); \
	done

## ---- things to make --------------------------------------------------------

.PHONY: build
build: ## The product's one binary, bin/regrade
	@go build -trimpath -ldflags '-s -w' -o bin/regrade ./cmd/regrade

# Like v0.1.0. It stands in every file of a release.
VERSION ?=

.PHONY: release
release: ## The files of a release into dist/, offline: make release VERSION=v0.1.0
	@nice go -C tools/chart test -vet=off -count=1 ./...
	@nice go -C tools/release run . -C $(CURDIR) -version '$(VERSION)' $(RELEASE_FLAGS)

.PHONY: reproducible
reproducible: ## The amd64 binary twice, in two folders and without a cache: the same bytes? [VERSION=v0.1.0]
	@nice go -C tools/release run . -C $(CURDIR) -version '$(or $(VERSION),v0.0.0)' -reproduce $(RELEASE_FLAGS)

.PHONY: demo
demo: ## A whole fleet on this machine, no root, no network
	@go run ./cmd/demo

.PHONY: generate
generate: ## Write docs/swap-states.md, the golden files and the Helm chart anew
	@go test -count=1 ./internal/swap ./internal/fitness ./internal/decide ./internal/recover ./internal/cli/chart -update
