package servers

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// debianPackages maps the servers that come from Debian to their package and
// to a check whether it is there. Kafka is not in Debian; see kafka_install.go.
// PgBouncer is no server of its own and so not among [Names].
var debianPackages = map[string]struct {
	pkg       string
	duration  string
	installed func() error
}{
	"postgres": {"postgresql", "about half a minute", func() error {
		_, err := postgresBinDir()
		return err
	}},
	"rabbitmq": {"rabbitmq-server", "about a minute", func() error {
		_, err := exec.LookPath(rabbitmqScript)
		return err
	}},
	"nats": {"nats-server", "a few seconds", func() error {
		_, err := exec.LookPath("nats-server")
		return err
	}},
	"pgbouncer": {"pgbouncer", "a few seconds", func() error {
		_, err := exec.LookPath("pgbouncer")
		return err
	}},
}

// Ensure installs whatever the named servers need and the machine lacks:
// packages of Debian (or Ubuntu) with apt-get, through sudo if this process
// does not run as root, and the jars of Kafka with Maven. It prints a line to
// out before anything that takes long, and nothing if all is there.
//
// The services of newly installed packages are neither started nor enabled.
func Ensure(ctx context.Context, out io.Writer, names ...string) error {
	var packages []string
	for _, name := range names {
		d, ok := debianPackages[name]
		if !ok && !slices.Contains(Names(), name) {
			return fmt.Errorf("unknown server %q, known are: %s", name, strings.Join(Names(), ", "))
		}
		if !ok || d.installed() == nil || slices.Contains(packages, d.pkg) {
			continue
		}
		fmt.Fprintf(out, "installing %s from Debian, %s\n", d.pkg, d.duration)
		packages = append(packages, d.pkg)
	}
	if len(packages) > 0 {
		if err := installDebian(ctx, packages); err != nil {
			return fmt.Errorf("installing %s: %w", strings.Join(packages, ", "), err)
		}
	}
	if slices.Contains(names, "kafka") {
		if err := installKafka(ctx, out); err != nil {
			return fmt.Errorf("installing kafka: %w", err)
		}
	}
	return nil
}

// installScript runs as root with the packages as arguments. The policy-rc.d
// file is how Debian is told not to start services; one that the machine
// already has is left alone. The package lists are refreshed only if they turn
// out to be missing or too old.
//
//go:embed install.sh
var installScript string

func installDebian(ctx context.Context, packages []string) error {
	byHand := fmt.Errorf("install by hand: apt-get install %s", strings.Join(packages, " "))
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is neither Debian nor Ubuntu (%w); install the equivalents of: %s",
			err, strings.Join(packages, " "))
	}
	argv := append([]string{"sh", "-c", installScript, "install.sh"}, packages...)
	if os.Getuid() != 0 {
		if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
			return fmt.Errorf("not root, and sudo without a password is not possible (%w); %w", err, byHand)
		}
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	if err := runQuietly(ctx, argv...); err != nil {
		return fmt.Errorf("%w\n%w", err, byHand)
	}
	for name, d := range debianPackages {
		if err := d.installed(); slices.Contains(packages, d.pkg) && err != nil {
			return fmt.Errorf("package %s is installed, but %s is not found: %w", d.pkg, name, err)
		}
	}
	return nil
}

// runQuietly runs a command and shows its output only in an error.
func runQuietly(ctx context.Context, argv ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", argv[0], err), errors.New(strings.TrimSpace(output.String())))
	}
	return nil
}
