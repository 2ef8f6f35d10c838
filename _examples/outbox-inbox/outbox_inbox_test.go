package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
)

// TestMain lets the test binary be the services, as the program is.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		main()
	}

	os.Exit(m.Run())
}

// TestEveryOrderIsChargedOnce runs the program. It needs servers, whose addresses are in INBOX_TEST_POSTGRES,
// INBOX_TEST_RABBITMQ and INBOX_TEST_KAFKA: `make test` starts them and sets these.
func TestEveryOrderIsChargedOnce(t *testing.T) {
	t.Parallel()

	for broker, variable := range map[string]string{"rabbitmq": "INBOX_TEST_RABBITMQ", "kafka": "INBOX_TEST_KAFKA"} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()

			const orders = 30

			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{
				"-db", address(t, "INBOX_TEST_POSTGRES"), "-broker", broker, "-broker-addr", address(t, variable), "-orders", strconv.Itoa(orders),
			}, &stdout, &stderr)

			if code != exitKept {
				t.Fatalf("exit code %d, want 0\n%s%s", code, stdout.String(), stderr.String())
			}

			for row, want := range map[string]int{
				"orders": orders, "charges": orders, "invoices": orders, "doubled": 0, "missing": 0,
				"published": orders + relayBatch, // each killed relay left half a batch to publish again
			} {
				if got := number(t, stdout.String(), row); got != want {
					t.Errorf("%s: %d, want %d\n%s", row, got, want, stdout.String())
				}
			}

			if got := number(t, stdout.String(), "deliveries"); got < orders+relayBatch {
				t.Errorf("deliveries: %d, want at least %d\n%s", got, orders+relayBatch, stdout.String())
			}

			for _, told := range []string{"the relay is killed between publish and mark", "the consumer is killed between commit and ack"} {
				if !strings.Contains(stdout.String(), told) {
					t.Errorf("output does not say %q:\n%s", told, stdout.String())
				}
			}
		})
	}
}

func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()

	for damage, query := range map[string]string{
		"nothing":         `SELECT 1`,
		"doubled charge":  `INSERT INTO {schema}.charges SELECT * FROM {schema}.charges`,
		"doubled invoice": `INSERT INTO {schema}.watermill_invoices (uuid, payload, transaction_id) VALUES ('2', '{"order_id": "1"}', pg_current_xact_id())`,
		"missing charge":  `DELETE FROM {schema}.charges`,
		"missing invoice": `DELETE FROM {schema}.watermill_invoices`,
		"no orders":       `DELETE FROM {schema}.orders`,
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()

			s := newSetting(t)
			for _, statement := range []string{
				`INSERT INTO {schema}.orders VALUES ('1', 'somebody', 100)`,
				`INSERT INTO {schema}.charges VALUES ('1', 'somebody', 100)`,
				`INSERT INTO {schema}.watermill_invoices (uuid, payload, transaction_id) VALUES ('1', '{"order_id": "1"}', pg_current_xact_id())`,
				query,
			} {
				if _, err := s.db.ExecContext(t.Context(), s.query(statement)); err != nil {
					t.Fatal(err)
				}
			}

			r, err := s.readReport(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}

			var out bytes.Buffer
			r.print(&out)

			if want := damage == "nothing"; r.kept() != want || strings.Contains(out.String(), "BROKEN") == want {
				t.Errorf("kept is %t\n%s", r.kept(), out.String())
			}
		})
	}
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	for args, wants := range map[string]string{
		"-broker nats": `-broker "nats": must be rabbitmq or kafka`,
		"-orders 19":   "-orders 19: must be at least 20",
		"monday":       `unexpected argument "monday"`,
		"-brokers x":   "flag provided but not defined: -brokers",
		"-db postgres://x@127.0.0.1:1/x?sslmode=disable": "-db: ",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()

			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitFailed {
				t.Errorf("exit code %d, want 2\n%s", code, stdout.String())
			}

			if !strings.Contains(stderr.String(), wants) {
				t.Errorf("error does not say %q:\n%s", wants, stderr.String())
			}
		})
	}
}

func TestUnreachableBrokerIsNamed(t *testing.T) {
	t.Parallel()

	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"-db", address(t, "INBOX_TEST_POSTGRES"), "-broker-addr", "amqp://guest:guest@127.0.0.1:1/",
	}, &stdout, &stderr)

	if want := `consumer: rabbitmq at "amqp://guest:guest@127.0.0.1:1/": `; code != exitFailed || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, want 2, and an error that says %q\n%s", code, want, stderr.String())
	}
}

// number returns what a row of the table says.
func number(t *testing.T, output, row string) int {
	t.Helper()

	found := regexp.MustCompile(`(?m)^  ` + row + ` +(\d+)`).FindStringSubmatch(output)
	if found == nil {
		t.Fatalf("no row %q:\n%s", row, output)
	}

	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// newSetting has the tables of a run, and no services.
func newSetting(t *testing.T) *setting {
	t.Helper()

	cfg := config{dsn: address(t, "INBOX_TEST_POSTGRES"), runID: "test_" + strings.ToLower(watermill.NewShortUUID())}

	db, err := openDatabase(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })

	s := &setting{config: cfg, db: db, logger: watermill.NopLogger{}}
	t.Cleanup(func() {
		if err := s.dropTables(context.Background()); err != nil {
			t.Error(err)
		}
	})

	if err := s.createTables(t.Context()); err != nil {
		t.Fatal(err)
	}

	return s
}

// address fails the test, rather than skipping it, when there is no server: what was not tried did not pass.
func address(t *testing.T, variable string) string {
	t.Helper()

	addr := os.Getenv(variable)
	if addr == "" {
		t.Fatalf("%s is not set: run `make test`, or set it to the address of a server that already runs", variable)
	}

	return addr
}
