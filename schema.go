package inbox

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed schema
var schemaFiles embed.FS

// migration is one file of schema/<engine>, with the table names filled in.
type migration struct {
	version    int
	name       string
	statements []string
}

// Schema returns the SQL that [Inbox.Migrate] would run on an empty database, for people who use a migration tool of
// their own. It can be run more than once, and Migrate after it finds nothing to do. Options other than [WithTable] do
// not change it.
func Schema(dialect Dialect, opts ...Option) (string, error) {
	c, err := newConfig(dialect, opts)
	if err != nil {
		return "", fmt.Errorf("inbox: %w", err)
	}

	migrations, err := migrationsOf(c.engine, c.tables)
	if err != nil {
		return "", fmt.Errorf("inbox: %w", err)
	}

	q := c.engine.queries(c.tables, 0)

	var b strings.Builder
	statement := func(s string) { b.WriteString(s + ";\n\n") }

	if ddl := c.engine.schemaDDL(c.tables.ledger.schema); ddl != "" {
		statement(ddl)
	}

	statement(q.createMigrations)

	for _, m := range migrations {
		for _, s := range m.statements {
			statement(s)
		}

		statement(fmt.Sprintf(q.recordMigration, m.version))
	}

	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Migrate creates the tables of the inbox, or brings them up to the version that this library needs. It runs in one
// transaction, may be called by many processes at once, and changes nothing when there is nothing to do; it needs no
// privilege to create tables then. A schema given with [WithTable] is created when missing.
func (ib *Inbox) Migrate(ctx context.Context) error {
	migrations, err := migrationsOf(ib.engine, ib.tables)
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}

	err = ib.retryTransient(func() error { return ib.repo.migrate(ctx, migrations) }, nil)
	if err != nil {
		return fmt.Errorf("inbox: migrating %s: %w", ib.tables.ledger, err)
	}

	return nil
}

// migrate applies what is not recorded as applied.
func (r *repository) migrate(ctx context.Context, migrations []migration) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.engine.lockMigrations(ctx, tx); err != nil {
			return err
		}

		applied, err := r.appliedMigrations(ctx, tx)
		if err != nil {
			return err
		}

		if applied == nil {
			if err := r.engine.ensureSchema(ctx, tx, r.tables.ledger.schema); err != nil {
				return err
			}

			if _, err := tx.ExecContext(ctx, r.queries.createMigrations); err != nil {
				return err
			}
		}

		for _, m := range migrations {
			if applied[m.version] {
				continue
			}

			for _, statement := range append(m.statements, fmt.Sprintf(r.queries.recordMigration, m.version)) {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
			}
		}

		for _, probe := range r.queries.probes {
			if _, err := tx.ExecContext(ctx, probe); err != nil {
				return fmt.Errorf("a table of that name is not an inbox's: %w", err)
			}
		}

		return nil
	})
}

// appliedMigrations returns nil when nothing was ever applied, or a table was dropped since. All can be applied again.
func (r *repository) appliedMigrations(ctx context.Context, tx *sql.Tx) (map[int]bool, error) {
	for _, t := range append(r.tables.all(), r.tables.migrations) {
		if exists, err := r.engine.exists(ctx, tx, t); err != nil || !exists {
			return nil, err
		}
	}

	rows, err := tx.QueryContext(ctx, r.queries.listMigrations)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	applied := make(map[int]bool)

	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}

		applied[version] = true
	}

	return applied, rows.Err()
}

func migrationsOf(e engine, t tables) ([]migration, error) {
	dir := path.Join("schema", e.name())

	files, err := fs.ReadDir(schemaFiles, dir) // sorted by name
	if err != nil {
		return nil, err
	}

	names := strings.NewReplacer(
		"{{ledger}}", t.ledger.String(),
		"{{ledger_name}}", quote(t.ledger.name),
		"{{outputs}}", t.outputs.String(),
		"{{schema}}", quote(t.ledger.schema),
		"{{unprocessed}}", quote(t.ledger.name+unprocessedSuffix),
		"{{payloads}}", t.payloads.String(),
		"{{payloads_name}}", quote(t.payloads.name),
		"{{failures}}", t.failures.String(),
		"{{failures_name}}", quote(t.failures.name),
		"{{due}}", quote(t.ledger.name+dueSuffix),
		"{{lane}}", quote(t.ledger.name+laneSuffix),
		"{{active}}", quote(t.ledger.name+activeSuffix),
		"{{dead}}", quote(t.ledger.name+deadSuffix),
		"{{failed}}", quote(t.ledger.name+failedSuffix),
	)

	migrations := make([]migration, len(files))

	for i, file := range files {
		text, err := fs.ReadFile(schemaFiles, path.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}

		number, _, _ := strings.Cut(file.Name(), "_")

		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", file.Name(), err)
		}

		migrations[i] = migration{version, file.Name(), splitStatements(names.Replace(string(text)))}
	}

	return migrations, nil
}

// splitStatements splits at semicolons that end a line, which is all that the embedded files need: pgx refuses several
// statements at once.
func splitStatements(text string) []string {
	var statements []string

	for s := range strings.SplitSeq(text, ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}

	return statements
}
