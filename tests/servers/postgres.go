package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Postgres is a PostgreSQL server with one superuser, postgres, who needs no
// password. It does sync to disk, since tests crash it. The Unix socket is in
// the directory given to [NewPostgres].
//
// PostgreSQL refuses to run as root; for root the server runs as the system
// user postgres.
type Postgres struct{ instance }

// NewPostgres returns a PostgreSQL server which keeps its data below dir.
func NewPostgres(dir string) *Postgres {
	return &Postgres{newInstance("postgres", dir)}
}

// Addr returns a DSN.
func (p *Postgres) Addr() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.hostPort())
}

// Start starts the server and returns once it answers, see [Server].
func (p *Postgres) Start(ctx context.Context) error { return p.start(ctx, p.launch) }

func (p *Postgres) launch(ctx context.Context) error {
	bin, err := postgresBinDir()
	if err != nil {
		return err
	}
	owner, err := p.giveToPostgresUser()
	if err != nil {
		return err
	}
	data := p.path("data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		err := p.runTool(ctx, command{
			path: filepath.Join(bin, "initdb"),
			args: []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"},
			user: owner,
		})
		if err != nil {
			return err
		}
	}

	args := []string{"-D", data}
	for _, setting := range p.settings() {
		args = append(args, "-c", setting)
	}
	return p.run(ctx, command{
		path: filepath.Join(bin, "postgres"),
		args: args,
		user: owner,
		// SIGTERM would wait for all clients to leave.
		stopSignal: syscall.SIGINT,
		// SIGQUIT is the immediate shutdown. It has the children of the
		// server exit and its shared memory released, unlike SIGKILL.
		orphanSignal: syscall.SIGQUIT,
		ready: func(ctx context.Context) error {
			return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q",
				"-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres", "-d", "postgres").Run()
		},
	})
}

func (p *Postgres) settings() []string {
	return []string{
		"listen_addresses=127.0.0.1",
		fmt.Sprintf("port=%d", p.port),
		// Relative to the data directory: the path of a socket is limited to
		// 107 bytes, and temporary directories of tests can be longer.
		"unix_socket_directories=..",
		// In the data directory, so that a crash leaves nothing in /dev/shm.
		"dynamic_shared_memory_type=mmap",
		"fsync=on",
		"max_connections=300",
		"shared_buffers=256MB",
		"deadlock_timeout=200ms",
		"wal_level=minimal",
		"max_wal_senders=0",
	}
}

// giveToPostgresUser lets the system user postgres use the directory of the
// server if this process runs as root.
func (s *instance) giveToPostgresUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("root needs the system user postgres to run it as: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(s.dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, openPath(s.dir)
}

// openPath lets every user pass through the directories between the system's
// temporary directory and dir. Those made by testing.T.TempDir are private.
func openPath(dir string) error {
	temp := os.TempDir() + string(filepath.Separator)
	for parent := filepath.Dir(dir); strings.HasPrefix(parent, temp); parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if err := os.Chmod(parent, info.Mode()|0o011); err != nil {
			return err
		}
	}
	return nil
}

// postgresBinDir finds the newest PostgreSQL of the machine. Debian keeps
// server programs out of PATH, in one directory for each major version.
func postgresBinDir() (string, error) {
	newest, found := 0, ""
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil || major <= newest {
			continue
		}
		if _, err := exec.LookPath(filepath.Join(dir, "postgres")); err == nil {
			newest, found = major, dir
		}
	}
	if found != "" {
		return found, nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", err
	}
	return filepath.Dir(path), nil
}
