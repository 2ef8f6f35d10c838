package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// outcome is what somebody sees who runs the program.
type outcome struct {
	code           int
	stdout, stderr string
}

func runProgram(t *testing.T, args ...string) outcome {
	t.Helper()

	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr)

	return outcome{code, stdout.String(), stderr.String()}
}

// row returns the number in a row of the table.
func (o outcome) row(t *testing.T, name string) int {
	t.Helper()

	found := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(name) + ` +(\d+) `).FindStringSubmatch(o.stdout)
	if found == nil {
		t.Fatalf("no row %q in the table:\n%s%s", name, o.stdout, o.stderr)
	}

	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}

	return n
}

func (o outcome) requireRow(t *testing.T, name string, want int) {
	t.Helper()

	if got := o.row(t, name); got != want {
		t.Errorf("%s: %d, want %d\n%s", name, got, want, o.stdout)
	}
}

func (o outcome) requireCode(t *testing.T, want int) {
	t.Helper()

	if o.code != want {
		t.Fatalf("exit code %d, want %d\n%s%s", o.code, want, o.stdout, o.stderr)
	}
}

// requireOneScreen fails unless the output fits a terminal of 24 lines and 80 columns.
func (o outcome) requireOneScreen(t *testing.T) {
	t.Helper()

	lines := strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines:\n%s", len(lines), o.stdout)
	}

	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
}

func writeFile(t *testing.T, lines ...string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "mine.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

const (
	lineA      = `{"source":"till-1","id":"4711","type":"order_placed","customer":"ann","amount_cents":1000}`
	lineOther  = `{"source":"till-2","id":"4711","type":"order_placed","customer":"bob","amount_cents":250}`
	lineNoTill = `{"id":"019593aa-e469-703a-81ad-cfc661ae16da","customer":"bob","amount_cents":1}`
)

func TestQuickstart(t *testing.T) {
	t.Parallel()

	t.Run("with the inbox nothing is lost and nothing doubled", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t)
		o.requireCode(t, 0)
		o.requireOneScreen(t)
		o.requireRow(t, "events", 300)
		o.requireRow(t, "effects", 300)
		o.requireRow(t, "lost", 0)
		o.requireRow(t, "doubled", 0)

		deliveries, runs := o.row(t, "deliveries"), o.row(t, "handler runs")
		if deliveries < 900 || runs <= 300 || o.row(t, "outputs sent") < 300 {
			t.Errorf("there was no trouble to survive:\n%s", o.stdout)
		}

		if skipped := o.row(t, "duplicates skipped"); skipped < 600 || skipped > deliveries-runs {
			t.Errorf("%d duplicates skipped of %d deliveries with %d handler runs", skipped, deliveries, runs)
		}

		if !strings.Contains(o.stdout, "9626.72  of 9626.72 owed") {
			t.Errorf("charged is not what was owed:\n%s", o.stdout)
		}

		if !strings.Contains(o.stdout, "Kept: ") || o.stderr != "" {
			t.Errorf("no clear verdict:\n%s%s", o.stdout, o.stderr)
		}
	})

	t.Run("without the inbox customers pay more than once", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-inbox=false")
		o.requireCode(t, 0)
		o.requireOneScreen(t)
		o.requireRow(t, "doubled", 300)
		o.requireRow(t, "duplicates skipped", 0)

		if effects := o.row(t, "effects"); effects < 900 {
			t.Errorf("%d effects of 900 deliveries", effects)
		}

		if !strings.Contains(o.stdout, "Without the inbox 58 of 58 customers paid more than once: ") {
			t.Errorf("no clear verdict:\n%s", o.stdout)
		}
	})
}

func TestOwnEvents(t *testing.T) {
	t.Parallel()

	t.Run("repeated lines are more deliveries of one event", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-events", writeFile(t, lineA, "", lineOther, lineA, lineNoTill, lineA))
		o.requireCode(t, 0)
		o.requireRow(t, "events", 3)
		o.requireRow(t, "effects", 3)
		o.requireRow(t, "lost", 0)
		o.requireRow(t, "doubled", 0)

		if o.row(t, "deliveries") < 5*copies || !strings.Contains(o.stdout, "2 more lines repeat an event") {
			t.Errorf("the repeated lines are not delivered, or not mentioned:\n%s", o.stdout)
		}
	})

	t.Run("a single event is enough", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-events", writeFile(t, lineA))
		o.requireCode(t, 0)
		o.requireRow(t, "effects", 1)
	})
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	notADatabase := writeFile(t, strings.Repeat("not a database\n", 100))

	for name, c := range map[string]struct {
		args  []string
		wants string
	}{
		"malformed JSON":  {[]string{"-events", writeFile(t, lineA, `{"id":"1",`)}, "mine.jsonl:2: not an event: unexpected end of JSON input"},
		"no id":           {[]string{"-events", writeFile(t, lineA, "", `{"customer":"ann","amount_cents":1}`)}, `mine.jsonl:3: "id" is missing or empty`},
		"id of a number":  {[]string{"-events", writeFile(t, `{"id":1,"customer":"ann","amount_cents":1}`)}, `mine.jsonl:1: not an event: "id" must not be a JSON number`},
		"no object":       {[]string{"-events", writeFile(t, lineA, `[]`)}, "mine.jsonl:2: not an event: "},
		"no customer":     {[]string{"-events", writeFile(t, `{"id":"1","amount_cents":1}`)}, `mine.jsonl:1: "customer" is missing or empty`},
		"negative amount": {[]string{"-events", writeFile(t, `{"id":"1","customer":"ann","amount_cents":-1}`)}, `mine.jsonl:1: "amount_cents" is missing or not positive`},
		"endless line":    {[]string{"-events", writeFile(t, lineA, strings.Repeat(" ", 1<<20))}, "mine.jsonl:2: bufio.Scanner: token too long"},
		"no events":       {[]string{"-events", writeFile(t, "", "")}, "mine.jsonl: no events in it"},
		"no file":         {[]string{"-events", "nowhere.jsonl"}, "nowhere.jsonl: no such file or directory"},
		"no database":     {[]string{"-db", notADatabase}, "mine.jsonl: file is not a database"},
		"unknown flag":    {[]string{"-colour"}, "flag provided but not defined: -colour"},
		"an argument":     {[]string{"events.jsonl"}, `unexpected argument "events.jsonl"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := runProgram(t, c.args...)
			o.requireCode(t, 2)

			if !strings.Contains(o.stderr, c.wants) {
				t.Errorf("error does not say %q:\n%s", c.wants, o.stderr)
			}
		})
	}
}

func TestKeptDatabase(t *testing.T) {
	t.Parallel()

	events := writeFile(t, lineA, lineOther, lineNoTill)

	t.Run("a second run charges nobody", func(t *testing.T) {
		t.Parallel()

		args := []string{"-events", events, "-db", filepath.Join(t.TempDir(), "kept 100%.db")}
		first, second := runProgram(t, args...), runProgram(t, args...)
		first.requireCode(t, 0)
		second.requireCode(t, 0)
		second.requireRow(t, "effects", 3)
		second.requireRow(t, "handler runs", first.row(t, "handler runs"))
	})

	t.Run("is not mixed with one made without the inbox", func(t *testing.T) {
		t.Parallel()

		args := []string{"-events", events, "-db", filepath.Join(t.TempDir(), "kept.db")}
		runProgram(t, append(args, "-inbox=false")...).requireCode(t, 0)

		o := runProgram(t, args...)
		o.requireCode(t, 2)

		if !strings.Contains(o.stderr, "kept.db: was made with -inbox=false") {
			t.Errorf("unclear error: %s", o.stderr)
		}
	})

	for name, c := range map[string]struct{ damage, row, verdict string }{
		"a second charge is a broken promise": {
			`INSERT INTO charges SELECT * FROM charges WHERE customer = 'ann'`, "doubled", "BROKEN: 1 lost, 1 doubled", // the second has no receipt
		},
		"a second receipt with another id is a broken promise": {
			`INSERT INTO receipts VALUES ('another', 'till-1', '4711')`, "doubled", "BROKEN: 0 lost, 1 doubled",
		},
		"a missing charge is a broken promise": {
			`DELETE FROM charges WHERE customer = 'ann'`, "lost", "BROKEN: 1 lost, 0 doubled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			args := []string{"-events", events, "-db", filepath.Join(t.TempDir(), "kept.db")}
			runProgram(t, args...).requireCode(t, 0)
			execute(t, args[3], c.damage)

			o := runProgram(t, args...)
			o.requireCode(t, 1)
			o.requireRow(t, c.row, 1)

			if !strings.Contains(o.stdout, c.verdict) {
				t.Errorf("verdict is not %q:\n%s", c.verdict, o.stdout)
			}
		})
	}
}

// A charge whose receipt is not there counts as lost. The inbox sends it again, so this needs a look at the database
// before any delivery.
func TestMissingReceiptCountsAsLost(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "kept.db")
	runProgram(t, "-events", writeFile(t, lineA, lineOther), "-db", file).requireCode(t, 0)
	execute(t, file, `DELETE FROM receipts WHERE source = 'till-2'`)

	db, err := openDatabase(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	r, err := readReport(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}

	if r.lost != 1 || r.doubled != 0 {
		t.Errorf("lost %d, doubled %d, want 1 and 0", r.lost, r.doubled)
	}
}

// Ctrl-C ends the program between any two messages, and leaves no half-written state: the next run completes it.
func TestInterruptedRunIsCompletedByTheNext(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "kept.db")
	ctx, cancel := context.WithCancel(t.Context())

	var stderr bytes.Buffer
	if code := run(ctx, []string{"-db", file}, cancelOn{"deliveries", cancel}, &stderr); code != 2 {
		t.Fatalf("exit code %d of an interrupted run: %s", code, stderr.String())
	}

	if !strings.Contains(stderr.String(), "context canceled") {
		t.Errorf("unclear error: %s", stderr.String())
	}

	o := runProgram(t, "-db", file)
	o.requireCode(t, 0)
	o.requireRow(t, "effects", 300)
}

// cancelOn is a terminal in front of which somebody loses patience.
type cancelOn struct {
	word   string
	cancel context.CancelFunc
}

func (c cancelOn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.word)) {
		c.cancel()
	}

	return len(b), nil
}

func execute(t *testing.T, file, query string) {
	t.Helper()

	db, err := openDatabase(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}
