package servers_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestPostgres(t *testing.T) {
	t.Parallel()
	s := servers.NewPostgres(t.TempDir())
	testRestarts(t, s,
		func() { psql(t, s.Addr(), "create table kept (n int); insert into kept values (42)") },
		func() {
			if got := psql(t, s.Addr(), "select n from kept"); got != "42" {
				t.Errorf("the table holds %q after a restart, want 42", got)
			}
		})
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	testRestarts(t, servers.NewRabbitMQ(t.TempDir()), nil, nil)
}

func TestNATS(t *testing.T) {
	t.Parallel()
	s := servers.NewNATS(t.TempDir())
	testRestarts(t, s,
		func() {
			jetStream(t, s.Addr(), "STREAM.CREATE.KEPT", `{"name":"KEPT","subjects":["kept"],"storage":"file"}`)
		},
		func() {
			if info := jetStream(t, s.Addr(), "STREAM.INFO.KEPT", ""); !strings.Contains(info, `"name":"KEPT"`) {
				t.Errorf("the stream is gone after a restart: %s", info)
			}
		})
}

func TestKafka(t *testing.T) {
	t.Parallel()
	testRestarts(t, servers.NewKafka(t.TempDir()), nil, nil)
}

func TestServersOfOneKindRunBesideEachOther(t *testing.T) {
	t.Parallel()
	for _, name := range servers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newServer(t, name), newServer(t, name)
			start(t, first)
			start(t, second)
			if first.Addr() == second.Addr() {
				t.Fatalf("both listen on %s", first.Addr())
			}
			if err := first.Kill(); err != nil {
				t.Fatal(err)
			}
			requireOpen(t, second)
		})
	}
}

func TestStartReportsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	s := servers.NewNATS(t.TempDir())
	listener, err := net.Listen("tcp4", hostPort(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// The port is taken by something that is no NATS server.
	err = s.Start(t.Context())
	if err == nil {
		t.Fatal("the server started on a port that is taken")
	}
	for _, want := range []string{"starting nats", s.LogFile(), "address already in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %q: %v", want, err)
		}
	}
}

func TestFromEnv(t *testing.T) {
	t.Setenv("INBOX_TEST_KAFKA", "127.0.0.1:1")
	t.Setenv("INBOX_TEST_NATS", "")
	if addr, err := servers.FromEnv("kafka"); err != nil || addr != "127.0.0.1:1" {
		t.Errorf("FromEnv(kafka) = %q, %v", addr, err)
	}
	if _, err := servers.FromEnv("nats"); err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("FromEnv(nats) does not explain what to do: %v", err)
	}
}

// testRestarts takes a server through its whole life. write stores something
// that verify must find after the server has been started again.
func testRestarts(t *testing.T, s servers.Server, write, verify func()) {
	t.Helper()
	start(t, s)
	requireOpen(t, s)
	addr := s.Addr()
	if write != nil {
		write()
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a running server was started again")
	}

	end := map[string]func() error{
		"kill": s.Kill,
		"stop": func() error { return s.Stop(t.Context()) },
	}
	for _, how := range []string{"kill", "stop", "kill"} {
		begin := time.Now()
		if err := end[how](); err != nil {
			t.Fatal(err)
		}
		requireClosed(t, s)
		ended := time.Now()
		start(t, s)
		requireOpen(t, s)
		t.Logf("%s took %v, the start after it %v", how, ended.Sub(begin), time.Since(ended))
		if s.Addr() != addr {
			t.Fatalf("address changed from %s to %s", addr, s.Addr())
		}
		if verify != nil {
			verify()
		}
	}

	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	requireClosed(t, s)
}

func newServer(t *testing.T, name string) servers.Server {
	t.Helper()
	s, err := servers.New(name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, s servers.Server) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func requireOpen(t *testing.T, s servers.Server) {
	t.Helper()
	conn, err := net.Dial("tcp4", hostPort(t, s))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func requireClosed(t *testing.T, s servers.Server) {
	t.Helper()
	if conn, err := net.Dial("tcp4", hostPort(t, s)); err == nil {
		conn.Close()
		t.Fatalf("%s still listens on %s", s.Name(), conn.RemoteAddr())
	}
}

func hostPort(t *testing.T, s servers.Server) string {
	t.Helper()
	if !strings.Contains(s.Addr(), "://") {
		return s.Addr()
	}
	u, err := url.Parse(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func psql(t *testing.T, dsn, query string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", query, dsn).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(bytes.TrimSpace(out))
}

// jetStream calls the JetStream API of a NATS server and returns the answer.
func jetStream(t *testing.T, addr, call, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp4", strings.TrimPrefix(addr, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB answer 1\r\nPUB $JS.API.%s answer %d\r\n%s\r\n",
		call, len(request), request)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "{") {
			return line
		}
	}
	t.Fatalf("no answer to %s", call)
	return ""
}
