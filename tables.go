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
	ledger, outputs, migrations table
}

const (
	outputsSuffix     = "_outputs"
	payloadsSuffix    = "_payloads" // reserved for stored messages
	migrationsSuffix  = "_migrations"
	unprocessedSuffix = "_unprocessed"

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

	for _, suffix := range []string{outputsSuffix, payloadsSuffix, migrationsSuffix, unprocessedSuffix} {
		if strings.HasSuffix(strings.ToLower(base), suffix) {
			return tables{}, fmt.Errorf("WithTable(%q): names that end in %s are kept for the side tables", name, suffix)
		}
	}

	return newTables(schema, base), nil
}

func newTables(schema, base string) tables {
	return tables{
		ledger:     table{schema, base},
		outputs:    table{schema, base + outputsSuffix},
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
