# Every target is one line; what needs more lives in hack/. Tools are pinned in tools/go.mod.
.PHONY: e2e clouds help plan up down status clean build test lint gen gen-check bench bench-peer fuzz soak image release push
.DEFAULT_GOAL := help
export KUBEBUILDER_ASSETS := $(CURDIR)/bin/envtest
# The generated clients of AWS are a fifth of the compiler's work and wait for the network at run time: everything but a release compiles them
# without optimisation, which takes a third of the time.
export GOFLAGS := $(shell go env GOFLAGS 2>/dev/null) '-gcflags=github.com/aws/aws-sdk-go-v2/service/...=-N -l'

help: ## what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 12
plan: ## the quickest look: what the machines for docs/examples would be and cost; no cluster, no account
	@mkdir -p bin && go build -o bin/karpenter ./cmd/karpenter && bin/karpenter plan -f docs/examples
	@echo "Next: make up starts a cluster with Karpenter on this machine."
up: build ## start a cluster with Karpenter on this machine; ARGS="--boot-delay 45s" for realism, ARGS="--set key=value" for values of the chart, ARGS="--provider kwok" for Karpenter's KWOK provider; KUBERNETES=1.34 for that minor
	@$(if $(findstring --provider,$(ARGS)),hack/provider $(ARGS) && )bin/karpenter-local up $(if $(KUBERNETES),--kubernetes $(KUBERNETES)) $(ARGS)
down: ## stop it, keep its state
	@if [ -x bin/karpenter-local ]; then bin/karpenter-local down; else echo "There is no cluster here."; fi
status: ## what runs, nodes, dollars per hour
	@if [ -x bin/karpenter-local ]; then bin/karpenter-local status; else echo "There is no cluster here; make up starts one."; exit 1; fi
clean: ## stop it and forget its state
	@if [ -x bin/karpenter-local ]; then bin/karpenter-local clean; else rm -rf .local; fi
build: ## build bin/karpenter and bin/karpenter-local where they are stale
	@hack/build
test: build ## all tests: plain ones, those that need an API server, those that need a cluster
	@hack/test
e2e: build ## the tests of a whole cluster; KUBERNETES=1.34 for a cluster of that minor, RUN=<regular expression> for some of them
	@KUBERNETES=$(KUBERNETES) go -C local test -count=1 -timeout 45m -v -run '$(or $(RUN),.)' ./e2e
lint: ## gofmt, go vet, staticcheck
	@hack/lint
gen: ## write generated files
	@go -C tools run ./crdgen
	@go -C ship run . licences
gen-check: ## fail if a generated file is not current
	@hack/gen-check
bench: ## benchmarks, compared with the last ones that were saved: make bench SAVE=1 saves
	@hack/bench
bench-peer: ## planner and controller beside Karpenter's own, written to docs/benchmarks.md; FULL=1 for the large rows
	@hack/bench-peer
clouds: build ## our core over providers that were written for Karpenter: bin/karpenter-kwok, bin/karpenter-aws-upstream, the tests of the adapter, and those on the local cluster; PROVIDER=kwok for one of the two
	@hack/clouds $(PROVIDER)
fuzz: ## every fuzz target for a short while; FUZZTIME=1m for longer
	@hack/fuzz
soak: build ## the long seeds; goes on where it was cut off
	@hack/soak
image: ## the container image for amd64 and arm64 in dist/, without Docker
	@go -C ship run . image
release: ## image, charts, definitions, policies and checksums in dist/; IMAGE=<where the image will be> fills it into the chart
	@go -C ship run . release
push: ## push dist/ to IMAGE=<registry>/<repository>, and charts to CHARTS=<registry>/<folder> if that is given
	@go -C ship run . push
