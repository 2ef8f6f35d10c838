package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
)

// TestEveryBrokerHandlesOnce runs the program on all brokers. It needs servers, whose addresses are in the variables
// INBOX_TEST_POSTGRES, INBOX_TEST_RABBITMQ, INBOX_TEST_NATS and INBOX_TEST_KAFKA: `make test` starts them and sets these.
func TestEveryBrokerHandlesOnce(t *testing.T) {
	t.Parallel()

	const events = 40

	dsn := ownDatabase(t)
	addresses := map[string]string{
		"gochannel": "",
		"sql":       dsn,
		"rabbitmq":  address(t, "INBOX_TEST_RABBITMQ"),
		"nats":      address(t, "INBOX_TEST_NATS"),
		"kafka":     address(t, "INBOX_TEST_KAFKA"),
	}

	for broker, addr := range addresses {
		t.Run(broker+" delivers every event twice and again in a second run, and charges once", func(t *testing.T) {
			t.Parallel()

			id := watermill.NewShortUUID()

			first := runProgram(t, dsn, broker, addr, id, events)
			first.requireOnce(t, 2*events, events, events)

			second := runProgram(t, dsn, broker, addr, id, events)
			second.requireOnce(t, 2*events, events, 0)
		})
	}

	t.Run("moving from broker to broker charges once", func(t *testing.T) {
		t.Parallel()

		id, charges := watermill.NewShortUUID(), events

		for _, broker := range slices.Sorted(maps.Keys(addresses)) {
			o := runProgram(t, dsn, broker, addresses[broker], id, events)
			o.requireOnce(t, 2*events, events, charges)

			charges = 0 // all are duplicates on the next broker
		}
	})

	for row, damage := range map[string]string{
		"doubled": `INSERT INTO brokers_example.charges SELECT * FROM brokers_example.charges WHERE order_id = 'order-00002' AND run = '%s'`,
		"missing": `DELETE FROM brokers_example.charges WHERE order_id = 'order-00002' AND run = '%s'`,
	} {
		t.Run(row+" charges are noticed", func(t *testing.T) {
			t.Parallel()

			id := watermill.NewShortUUID()
			runProgram(t, dsn, "gochannel", "", id, events).requireOnce(t, 2*events, events, events)
			execute(t, dsn, fmt.Sprintf(damage, id))

			o := runProgram(t, dsn, "gochannel", "", id, events)
			if o.code != 1 || o.row(t, row)[0] != 1 || !strings.Contains(o.stdout, "BROKEN") {
				t.Errorf("exit code %d, want 1\n%s", o.code, o.stdout)
			}
		})
	}
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		args  string
		wants string
	}{
		"no broker":       {"", `-broker "": must be one of gochannel, kafka, nats, rabbitmq, sql`},
		"unknown broker":  {"-broker redis", `-broker "redis": must be one of gochannel`},
		"needless addr":   {"-broker gochannel -broker-addr localhost:1", "gochannel is inside of this program"},
		"no events":       {"-broker gochannel -events 0", "-events 0: must be positive"},
		"bad run":         {"-broker gochannel -run a.b", `-run "a.b": must be`},
		"an argument":     {"-broker gochannel monday", `unexpected argument "monday"`},
		"unknown flag":    {"-brokers nats", "flag provided but not defined: -brokers"},
		"no such server":  {"-broker gochannel -db postgres://x@127.0.0.1:1/x?sslmode=disable", "-db: "},
		"unreadable -db":  {"-broker gochannel -db postgres://%zz", "-db: "},
		"no postgres sql": {"-broker sql -db postgres://x@127.0.0.1:1/x?sslmode=disable", "-db: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2\n%s", code, stdout.String())
			}

			if !strings.Contains(stderr.String(), c.wants) {
				t.Errorf("error does not say %q:\n%s", c.wants, stderr.String())
			}
		})
	}
}

func TestUnreachableBrokerIsNamed(t *testing.T) {
	t.Parallel()

	dsn := ownDatabase(t)

	for broker, addr := range map[string]string{
		"rabbitmq": "amqp://guest:guest@127.0.0.1:1/",
		"nats":     "nats://127.0.0.1:1",
		"kafka":    "127.0.0.1:1",
		"sql":      "postgres://x@127.0.0.1:1/x?sslmode=disable",
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()

			o := runProgram(t, dsn, broker, addr, watermill.NewShortUUID(), 1)
			if o.code != 2 || !strings.Contains(o.stderr, fmt.Sprintf("brokers: %s at %q: ", broker, addr)) {
				t.Errorf("exit code %d, want 2\n%s", o.code, o.stderr)
			}
		})
	}
}

// outcome is what somebody sees who runs the program.
type outcome struct {
	code           int
	stdout, stderr string
}

func runProgram(t *testing.T, dsn, broker, addr, id string, events int) outcome {
	t.Helper()

	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"-db", dsn, "-broker", broker, "-broker-addr", addr, "-run", id, "-events", strconv.Itoa(events),
	}, &stdout, &stderr)

	return outcome{code, stdout.String(), stderr.String()}
}

// row returns the numbers in a row of the result.
func (o outcome) row(t *testing.T, name string) (numbers []int) {
	t.Helper()

	line := regexp.MustCompile(`(?m)^  ` + name + ` +(\d+)(?:  (\d+) this time)?`).FindStringSubmatch(o.stdout)
	if line == nil {
		t.Fatalf("no row %q:\n%s%s", name, o.stdout, o.stderr)
	}

	for _, s := range line[1:] {
		n, err := strconv.Atoi("0" + s)
		if err != nil {
			t.Fatal(err)
		}

		numbers = append(numbers, n)
	}

	return numbers
}

// requireOnce fails unless the program kept its promise, after at least so many deliveries (brokers deliver at least
// once), with exactly so many charges: of all runs with this ID, and of this one.
func (o outcome) requireOnce(t *testing.T, deliveries, charges, newCharges int) {
	t.Helper()

	if o.code != 0 || o.row(t, "doubled")[0] != 0 || o.row(t, "missing")[0] != 0 {
		t.Fatalf("exit code %d, want 0\n%s%s", o.code, o.stdout, o.stderr)
	}

	if got := o.row(t, "deliveries"); got[1] < deliveries {
		t.Fatalf("%d deliveries this time, want at least %d\n%s", got[1], deliveries, o.stdout)
	}

	if got := o.row(t, "charges"); got[0] != charges || got[1] != newCharges {
		t.Fatalf("charges: %d, want %d and %d\n%s", got, charges, newCharges, o.stdout)
	}
}

// address fails the test, rather than skipping it, when there is no server: a broker that was not tried did not pass.
func address(t *testing.T, variable string) string {
	t.Helper()

	addr := os.Getenv(variable)
	if addr == "" {
		t.Fatalf("%s is not set: run `make test`, or set it to the address of a server that already runs", variable)
	}

	return addr
}

// ownDatabase creates a database that goes away with the test.
func ownDatabase(t *testing.T) (dsn string) {
	t.Helper()

	shared := address(t, "INBOX_TEST_POSTGRES")
	name := "brokers_" + strings.ToLower(watermill.NewShortUUID())

	execute(t, shared, `CREATE DATABASE "`+name+`"`)
	t.Cleanup(func() { execute(t, shared, `DROP DATABASE "`+name+`" WITH (FORCE)`) })

	u, err := url.Parse(shared)
	if err != nil {
		t.Fatalf("INBOX_TEST_POSTGRES must be a URL: %v", err)
	}

	u.Path = "/" + name

	return u.String()
}

func execute(t *testing.T, dsn, query string) {
	t.Helper()

	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	if _, err := db.ExecContext(context.Background(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
