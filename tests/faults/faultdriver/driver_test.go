package faultdriver_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/faults/faultdriver"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a transaction with one INSERT leaves.
type outcome struct {
	rows     int
	commitOK bool
}

func TestFaultsDoToTheDatabaseWhatTheySay(t *testing.T) {
	t.Parallel()

	const insertAt, commitAt = 3, 4 // after connect and begin

	want := map[faultdriver.Fault]outcome{
		{At: insertAt, Kind: faultdriver.ErrorBefore}: {rows: 0, commitOK: true},
		{At: insertAt, Kind: faultdriver.ErrorAfter}:  {rows: 1, commitOK: true},
		{At: insertAt, Kind: faultdriver.DropBefore}:  {rows: 0},
		{At: insertAt, Kind: faultdriver.DropAfter}:   {rows: 0},
		{At: commitAt, Kind: faultdriver.ErrorBefore}: {rows: 0},
		{At: commitAt, Kind: faultdriver.ErrorAfter}:  {rows: 1},
		{At: commitAt, Kind: faultdriver.DropBefore}:  {rows: 0},
		{At: commitAt, Kind: faultdriver.DropAfter}:   {rows: 1},
	}

	for _, engine := range testdb.All {
		for fault, want := range want {
			t.Run(engine.Name+"/"+strings.ReplaceAll(fault.String(), " ", "_"), func(t *testing.T) {
				t.Parallel()

				db := testdb.Open(t, engine)
				insert := "INSERT INTO " + db.EffectsTable(t) + " (event) VALUES ('e')"

				connector, err := faultdriver.Wrap(engine.Driver, db.DSN)
				if err != nil {
					t.Fatal(err)
				}

				faulty := sql.OpenDB(connector)
				t.Cleanup(func() {
					if err := errors.Join(faulty.Close(), connector.CloseIdle()); err != nil {
						t.Error(err)
					}
				})

				connector.Arm(fault)

				tx, err := faulty.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}

				_, insertErr := tx.ExecContext(t.Context(), insert)
				commitErr := tx.Commit()

				if failed := insertErr; fault.At == insertAt && !isFault(failed) {
					t.Errorf("INSERT: %v", failed)
				}

				if ok := commitErr == nil; ok != want.commitOK || !ok && !isFault(commitErr) {
					t.Errorf("COMMIT: %v", commitErr)
				}

				if n := len(connector.Fired()); n != 1 {
					t.Errorf("%d faults happened: %q", n, connector.Passed())
				}

				// Of the same pool: it has no connection left inside the transaction.
				if _, err := faulty.ExecContext(t.Context(), insert); err != nil {
					t.Errorf("afterwards: %v", err)
				}

				if n := db.Effects(t)["e"]; n != want.rows+1 {
					t.Errorf("%d rows, want %d and another", n, want.rows)
				}
			})
		}
	}
}

func isFault(err error) bool {
	return errors.Is(err, faultdriver.ErrInjected) || errors.Is(err, driver.ErrBadConn)
}
