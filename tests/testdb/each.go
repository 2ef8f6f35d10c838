package testdb

import "testing"

// ForEach runs a behaviour on each engine, on a database of its own with an effects table, all in parallel.
func ForEach(t *testing.T, engines []Engine, sentence string, fn func(t *testing.T, db *DB)) {
	t.Helper()
	t.Run(sentence, func(t *testing.T) {
		t.Parallel()

		for _, engine := range engines {
			t.Run(engine.Name, func(t *testing.T) {
				t.Parallel()

				db := Open(t, engine)
				db.EffectsTable(t)
				fn(t, db)
			})
		}
	})
}
