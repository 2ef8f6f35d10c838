package inbox

import (
	"fmt"
	"regexp"
	"strings"
)

// table is the validated name of a table.
type table struct {
	schema, name string
}

// String returns the quoted, schema-qualified name. Double quotes are standard SQL, and a validated name has none.
func (t table) String() string {
	return quote(t.schema) + "." + quote(t.name)
}

func quote(identifier string) string { return `"` + identifier + `"` }

// tables are the tables of one inbox.
type tables struct {
	ledger, outputs, payloads, failures, migrations table
}

// all are the tables that migrations make.
func (t tables) all() []table { return []table{t.ledger, t.outputs, t.payloads, t.failures} }

// Suffixes of the side tables, and of indexes, which share a namespace with tables.
const (
	outputsSuffix     = "_outputs"
	payloadsSuffix    = "_payloads"
	failuresSuffix    = "_failures"
	migrationsSuffix  = "_migrations"
	unprocessedSuffix = "_unprocessed"
	dueSuffix         = "_due"
	laneSuffix        = "_lane"
	activeSuffix      = "_active"
	deadSuffix        = "_dead"
	failedSuffix      = "_failed"

	// maxTableName leaves room for the longest suffix in PostgreSQL's 63 bytes; it would cut the rest off silently.
	maxTableName = 50
)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func parseTable(name string) (tables, error) {
	schema, base, qualified := strings.Cut(name, ".")
	parts := []string{schema, base}

	if !qualified {
		schema, base = "", name
		parts = []string{base}
	}

	for _, part := range parts {
		if !tableName.MatchString(part) || len(part) > maxTableName {
			return tables{}, fmt.Errorf("WithTable(%q): want \"name\" or \"schema.name\" of letters, digits and underscores, "+
				"not starting with a digit, at most %d bytes each", printable(name), maxTableName)
		}
	}

	for _, suffix := range []string{
		outputsSuffix, payloadsSuffix, failuresSuffix, migrationsSuffix,
		unprocessedSuffix, dueSuffix, laneSuffix, activeSuffix, deadSuffix, failedSuffix,
	} {
		if strings.HasSuffix(strings.ToLower(base), suffix) {
			return tables{}, fmt.Errorf("WithTable(%q): names that end in %s are kept for side tables and indexes", name, suffix)
		}
	}

	return newTables(schema, base), nil
}

func newTables(schema, base string) tables {
	return tables{
		ledger:     table{schema, base},
		outputs:    table{schema, base + outputsSuffix},
		payloads:   table{schema, base + payloadsSuffix},
		failures:   table{schema, base + failuresSuffix},
		migrations: table{schema, base + migrationsSuffix},
	}
}

// in fills in the engine's default schema.
func (t tables) in(e engine) tables {
	if t.ledger.schema == "" {
		return newTables(e.defaultSchema(), t.ledger.name)
	}

	return t
}

// fill puts the tables' names into a statement. A quoted name without its schema is how SQLite refers to a statement's own
// table.
func (t tables) fill(statement string) string {
	return strings.NewReplacer(
		"{ledger}", t.ledger.String(),
		"{outputs}", t.outputs.String(),
		"{payloads}", t.payloads.String(),
		"{failures}", t.failures.String(),
		"{ledger_name}", quote(t.ledger.name),
		"{payloads_name}", quote(t.payloads.name),
	).Replace(statement)
}
