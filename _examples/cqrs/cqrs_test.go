package main

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

func runProgram(t *testing.T, args ...string) (code int, output string) {
	t.Helper()

	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)

	return code, stdout.String() + stderr.String()
}

func requireRun(t *testing.T, code int, words []string, args ...string) {
	t.Helper()

	got, output := runProgram(t, args...)
	if got != code {
		t.Fatalf("exit code %d, want %d:\n%s", got, code, output)
	}

	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("output does not say %q:\n%s", word, output)
		}
	}
}

func TestEachOrderIsPlacedPaidAndReservedOnce(t *testing.T) {
	t.Parallel()

	requireRun(t, 0, []string{
		"40 commands sent, 60 events delivered; handlers ran 100 times, of which 20 failed",
		"orders         20, 0 doubled, 0 missing",
		"payments       20, 0 doubled, 0 missing",
		"reservations   20, 0 doubled, 0 missing",
		"Kept: ",
	}, "-orders", "20")
}

func TestASecondRunOnTheSameDatabaseDoesNothing(t *testing.T) {
	t.Parallel()

	args := []string{"-orders", "3", "-db", filepath.Join(t.TempDir(), "kept.db")}
	requireRun(t, 0, []string{"Kept: "}, args...)
	requireRun(t, 0, []string{"handlers ran 0 times", "Kept: "}, args...)
}

func TestADoubledPaymentIsReported(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "kept.db")
	requireRun(t, 0, nil, "-orders", "3", "-db", file)

	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	if _, err := db.ExecContext(t.Context(), `INSERT INTO payments (order_id) VALUES ('order-2')`); err != nil {
		t.Fatal(err)
	}

	requireRun(t, 1, []string{"payments        4, 1 doubled, 0 missing", "BROKEN"}, "-orders", "3", "-db", file)
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	requireRun(t, 2, []string{"flag provided but not defined"}, "-colour")
	requireRun(t, 2, []string{"cqrs: "}, "-db", filepath.Join(t.TempDir(), "missing", "x.db"))
}
