package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// TestMain lets the test binary be the worker, as the program is.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		main()
	}

	os.Exit(m.Run())
}

// outcome is what somebody sees who runs the program.
type outcome struct {
	code           int
	stdout, stderr string
}

func runProgram(t *testing.T, args string) outcome {
	t.Helper()

	var stdout, stderr bytes.Buffer
	code := run(t.Context(), strings.Fields(args), &stdout, &stderr)

	return outcome{code, stdout.String(), stderr.String()}
}

// row returns the number in a row of the table.
func (o outcome) row(t *testing.T, name string) int {
	t.Helper()

	found := regexp.MustCompile(`(?m)^  ` + name + ` +(\d+) `).FindStringSubmatch(o.stdout)
	if found == nil {
		t.Fatalf("exit code %d and no row %q in the table:\n%s%s", o.code, name, o.stdout, o.stderr)
	}

	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}

	return n
}

func (o outcome) require(t *testing.T, code int, rows map[string]int) {
	t.Helper()

	for name, want := range rows {
		if got := o.row(t, name); got != want {
			t.Errorf("%s: %d, want %d\n%s", name, got, want, o.stdout)
		}
	}

	for line := range strings.Lines(o.stdout) {
		if utf8.RuneCountInString(line) > 80+len("\n") {
			t.Errorf("more than 80 columns: %s", line)
		}
	}

	if o.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", o.code, code, o.stdout, o.stderr)
	}
}

// requireKilled fails unless the worker was killed while it waited for answers.
func (o outcome) requireKilled(t *testing.T, withheld int) {
	t.Helper()

	if want := fmt.Sprintf("with %d answers on their way: SIGKILL", withheld); !strings.Contains(o.stdout, want) {
		t.Errorf("the output does not say %q:\n%s", want, o.stdout)
	}

	if o.row(t, "leases") == 0 {
		t.Errorf("the killed worker had no leases:\n%s", o.stdout)
	}
}

func TestMailsOfAKilledWorker(t *testing.T) {
	t.Parallel()

	t.Run("with keys each is sent once though calls are repeated", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-mails 12 -kill 4 -delay 50ms")
		o.require(t, exitKept, map[string]int{"messages": 15, "mails": 12, "rows": 12, "doubled": 0, "missing": 0, "left": 0})
		o.requireKilled(t, concurrency)

		repeated := o.row(t, "repeated")
		if repeated < concurrency || o.row(t, "calls") < 12+repeated {
			t.Errorf("calls of the killed worker were not repeated:\n%s", o.stdout)
		}
	})

	t.Run("without keys those on their way are sent twice and rows are written once", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-mails 12 -kill 4 -delay 50ms -idempotency=false")
		o.require(t, exitKept, map[string]int{"messages": 15, "repeated": 0, "rows": 12, "missing": 0, "left": 0})
		o.requireKilled(t, concurrency)

		if doubled := o.row(t, "doubled"); doubled < concurrency || o.row(t, "mails") < 12+doubled {
			t.Errorf("no mails were sent twice:\n%s", o.stdout)
		}
	})

	t.Run("the last one is not lost", func(t *testing.T) {
		t.Parallel()

		o := runProgram(t, "-mails 5 -kill 5 -delay 50ms")
		o.require(t, exitKept, map[string]int{"mails": 5, "rows": 5, "doubled": 0, "missing": 0, "left": 0})
		o.requireKilled(t, 1)
	})
}

func TestNoCallIsRepeatedWithoutAKill(t *testing.T) {
	t.Parallel()

	o := runProgram(t, "-mails 8 -kill 0 -delay 10ms")
	o.require(t, exitKept, map[string]int{
		"messages": 10, "repeated": 0, "leases": 0, "mails": 8, "rows": 8, "doubled": 0, "missing": 0, "left": 0,
	})

	if strings.Contains(o.stdout, "SIGKILL") {
		t.Errorf("the worker was killed:\n%s", o.stdout)
	}
}

func TestConcurrentCallsWithOneKeySendOneMail(t *testing.T) {
	t.Parallel()

	api, err := startAPI(config{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = api.server.Close() })

	var (
		calls sync.WaitGroup
		ids   sync.Map
	)

	for range 20 {
		calls.Go(func() {
			m := &mailer{api: api.url, client: http.DefaultClient, keys: true}
			if id, err := m.send(t.Context(), "key", []byte(`{"order_id": "1"}`)); err == nil { // or it was a 500
				ids.Store(id, true)
			}
		})
	}

	calls.Wait()
	ids.Delete("mail-1")
	ids.Range(func(id, _ any) bool { t.Errorf("an answer is %v, want mail-1", id); return true })

	api.mu.Lock()
	defer api.mu.Unlock()

	if api.calls != 20 || api.sent["1"] != 1 || api.repeated+api.failed != 19 {
		t.Errorf("%d calls, of which %d failed and %d were repeated, sent %d mails", api.calls, api.failed, api.repeated, api.sent["1"])
	}
}

func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()

	for damage, r := range map[string]report{
		"nothing":                   {orders: 1, keys: true},
		"doubled mail without keys": {orders: 1, doubled: 1},
		"doubled mail":              {orders: 1, keys: true, doubled: 1},
		"missing mail":              {orders: 1, missing: 1},
		"wrong rows":                {orders: 1, wrongRows: 1},
		"dead letter":               {orders: 1, left: 1},
		"no orders":                 {keys: true},
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()

			var out bytes.Buffer
			r.print(&out)

			want := damage == "nothing" || damage == "doubled mail without keys"
			if r.kept() != want || strings.Contains(out.String(), "BROKEN") == want {
				t.Errorf("kept is %t\n%s", r.kept(), out.String())
			}
		})
	}
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	for args, want := range map[string]string{
		"-mails 0":          "-mails 0: must be at least 1",
		"-mails 3 -kill 4":  "-kill 4: must be between 0 and the number of mails, 3",
		"-kill -1":          "-kill -1: must be between 0",
		"-delay 1h":         "-delay 1h0m0s: must be between 0 and 30s",
		"-idempotency what": `unexpected argument "what"`,
		"-keys":             "flag provided but not defined: -keys",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()

			o := runProgram(t, args)
			if o.code != exitFailed || !strings.Contains(o.stderr, want) {
				t.Errorf("exit code %d, want 2, and an error that says %q:\n%s", o.code, want, o.stderr)
			}
		})
	}
}
