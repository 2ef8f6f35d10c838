package servers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// PgBouncerPoolSize is how many connections a [PgBouncer] makes to its server.
const PgBouncerPoolSize = 4

// PgBouncer is a PgBouncer in transaction mode before a PostgreSQL server: its
// clients share [PgBouncerPoolSize] connections, and each transaction may run
// on another one. Their search_path has nothing but pg_catalog.
// PgBouncer has no data and costs little to start, so every test that needs
// one starts it for itself.
//
// It refuses to run as root; for root it runs as the system user postgres.
type PgBouncer struct {
	instance
	postgresAddr string
}

// NewPgBouncer returns a proxy to the server at postgresAddr, a DSN in the form
// of a URL. Its configuration and log are below dir.
func NewPgBouncer(dir, postgresAddr string) *PgBouncer {
	return &PgBouncer{newInstance("pgbouncer", dir), postgresAddr}
}

// Addr returns the DSN of the same database through the proxy.
func (p *PgBouncer) Addr() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.hostPort())
}

// Start starts the proxy and returns once it answers, see [Server].
func (p *PgBouncer) Start(ctx context.Context) error { return p.start(ctx, p.launch) }

func (p *PgBouncer) launch(ctx context.Context) error {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		return err
	}
	database, err := p.database()
	if err != nil {
		return err
	}
	config := p.path("pgbouncer.ini")
	if err := os.WriteFile(config, []byte(p.settings(database)), 0o644); err != nil {
		return err
	}
	owner, err := p.giveToPostgresUser()
	if err != nil {
		return err
	}
	return p.run(ctx, command{path: path, args: []string{config}, user: owner, ready: p.ping})
}

// database is where the only database of the proxy is.
func (p *PgBouncer) database() (string, error) {
	u, err := url.Parse(p.postgresAddr)
	if err != nil {
		return "", err
	}
	if u.Hostname() == "" || u.User.Username() == "" {
		return "", fmt.Errorf("the address of PostgreSQL must be a URL with a user and a host")
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	database := fmt.Sprintf("host=%s port=%s user=%s dbname=%s",
		u.Hostname(), port, u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	if password, ok := u.User.Password(); ok {
		database += " password=" + password
	}
	return database, nil
}

func (p *PgBouncer) settings(database string) string {
	return strings.Join([]string{
		"[databases]",
		"postgres = " + database + " connect_query='SET search_path TO pg_catalog'",
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		fmt.Sprintf("listen_port = %d", p.port),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction",
		fmt.Sprintf("default_pool_size = %d", PgBouncerPoolSize),
		"max_client_conn = 200",
		"", // PgBouncer ignores a last line that has no end
	}, "\n")
}

// ping asks for TLS, which is denied with a single byte.
func (p *PgBouncer) ping(ctx context.Context) error {
	answer := make([]byte, 1)
	if err := exchange(ctx, p.port, []byte{0, 0, 0, 8, 4, 210, 22, 47}, answer); err != nil {
		return err
	}
	if answer[0] != 'N' {
		return fmt.Errorf("unexpected answer %q", answer)
	}
	return nil
}
