# RLC. Everything a person needs is `make run` and `make test`.
SHELL := /bin/bash
GO    ?= go
BIN   := bin
TOOL  := $(GO) tool -modfile=internal/tools/go.mod
export GOFLAGS := -buildvcs=false

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

build: ## build bin/rlc and bin/enforcer
	@mkdir -p $(BIN)
	@echo "building (the first time takes a few minutes)…" >&2
	$(GO) build -trimpath -ldflags='-s -w' -o $(BIN)/ ./cmd/...

run: build ## build and run the demo: the whole loop on real traffic, on http://127.0.0.1:8080
	$(BIN)/rlc demo $(ARGS)

test: needs ## install what the tests need and run every suite
	.ci/test

needs: ## install the programs that tests use (as root on Debian; else name what is missing)
	.ci/needs

lint: ## gofmt, vet, staticcheck, the floors, what pages must not do
	@out=$$(gofmt -l $$(git ls-files '*.go' | grep -v '_templ\.go$$')); [ -z "$$out" ] || { echo "gofmt wants:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	$(GO) test ./internal/archtest

generate: ## regenerate what is generated (templ components)
	$(TOOL) templ generate -path web >/dev/null

verify: ## generated files are fresh, go.mod is tidy, no called vulnerability
	.ci/verify

screenshots: needs ## take the pictures of docs/ anew, from the tests' world
	@mkdir -p docs/img
	RLC_DOCS_SHOTS=$(CURDIR)/docs/img $(GO) test -count=1 -run TestScreenshots ./web

bench: ## the benchmarks, with figures; first decisions beside those of other limiters
	cd bench && $(GO) run .
	$(GO) test -run '^$$' -bench . -benchmem ./...

scores: ## hold the policies against their bars on recorded traces, those of the demo or those in RLC_TRACES
	$(GO) test -count=1 -run TestRecordedTracesReachTheBars -v ./policies

chaos: needs ## the long fault tests: every kill three times, thousands of histories, the loop on ten seeds at 2,000 nodes
	RLC_KILLS=3 $(GO) test -count=1 -timeout 60m -tags fault -run 'Kill|Fault|Hit' ./internal/fault ./internal/planner ./cmd/rlc ./internal/e2e
	GOGC=400 RLC_HISTORIES=100000 $(GO) test -count=1 -timeout 3h -run 'Invariant1M|Invariant3No' ./policies
	RLC_HISTORIES=1000 RLC_CALLERS=100000 $(GO) test -count=1 -timeout 60m -run 'HistoriesAreLinearizable|EveryKeyExpires' ./enforcer/redis
	RLC_SIM_SEEDS=10 RLC_SIM_NODES=2000 $(GO) test -count=1 -timeout 3h ./enforcer/loop/sim

clean: ## remove what was built (the demo's data stays in demo-data)
	rm -rf $(BIN)

.PHONY: help build run test needs lint generate verify screenshots bench scores chaos clean
