# `make help` lists what there is. Everything runs on a machine with Go, and `test`, `bench` and `up` also need a JDK 17
# and Maven (for Apache Kafka) and install PostgreSQL, RabbitMQ and NATS from Debian's packages where they are missing.

GOLANGCI_LINT_VERSION = v2.15.0
GOVULNCHECK_VERSION   = v1.9.0

LINT    = bin/golangci-lint-$(GOLANGCI_LINT_VERSION)
SERVERS = bin/servers
# Every module of the repository, by folder.
MODULES = $(patsubst %/,%,$(dir $(shell git ls-files --cached --others --exclude-standard 'go.mod' '*/go.mod')))
# Those whose tests need nothing installed, and those whose tests need the servers.
SHORT = . inboxtest brokers/amqp brokers/kafka brokers/nats _examples/quickstart _examples/long-handler _examples/datalayers _examples/cqrs
REAL  = tests _examples/brokers _examples/outbox-inbox
# How often `make test` runs each test, and which.
COUNT ?= 1
RUN   ?= .
TEST   = go test -race -count=$(COUNT) -run "$(RUN)" -timeout 30m ./...

.DEFAULT_GOAL = help
.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z_]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## Deliver events several times through a failing handler and show that each counted once
	@cd _examples/quickstart && go build -o ../../bin/quickstart .
	@bin/quickstart $(ARGS)

.PHONY: test
test: test_short $(SERVERS) ## Run every test with -race on real servers, which it installs and starts
	@$(SERVERS) -- sh -ec 'for module in $(REAL); do (cd $$module && $(TEST)); done'

.PHONY: test_short
test_short: ## Run the tests that need nothing installed
	@for module in $(SHORT); do (cd $$module && $(TEST)) || exit 1; done

.PHONY: test_stress
test_stress: ## Run every test ten times
	$(MAKE) test COUNT=10

.PHONY: fuzz
fuzz: ## Fuzz identity, encodings and unmarshalers, FUZZTIME each (default 30s)
	@for module in . brokers/amqp brokers/kafka brokers/nats; do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z_]*' $$module/*_test.go | cut -c 6-); do \
			(cd $$module && go test -run XXX -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) .) || exit 1; \
		done \
	done

.PHONY: bench
bench: ## Compare handlers with and without an inbox, and store-then-process with River, on a PostgreSQL of its own
	@cd tests && go run ./bench $(ARGS)

.PHONY: up
up: $(SERVERS) ## Start all servers, print their addresses, and keep them until you leave the shell
	cd tests && ../$(SERVERS) -- $${SHELL:-sh}

.PHONY: lint
lint: $(LINT) ## Check style and common mistakes in every module
	@for module in $(MODULES); do \
		echo "lint $$module"; (cd $$module && $(CURDIR)/$(LINT) run ./...) || exit 1; \
	done

.PHONY: fmt
fmt: $(LINT) ## Format every module
	@for module in $(MODULES); do (cd $$module && $(CURDIR)/$(LINT) fmt ./...) || exit 1; done

.PHONY: tidy
tidy: ## Tidy every go.mod
	@for module in $(MODULES); do (cd $$module && go mod tidy) || exit 1; done

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what the core module calls
	go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...

$(LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION), some minutes"
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv bin/golangci-lint $@

.PHONY: $(SERVERS)
$(SERVERS): # always: go's cache knows better than make what is up to date
	@cd tests && go build -o ../$@ ./cmd/servers
