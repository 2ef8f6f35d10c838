package brokers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/watermill-inbox/inbox/tests/servers"
)

// process is a consumer that runs as a child of this process, and can be killed.
type process struct {
	told    *tally      // by the hooks of its inbox
	hanging chan string // the event in which it hangs

	published, refused atomic.Int64 // sendings that the broker took or not

	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  *buffer
	outputs *outputs
	read    sync.WaitGroup // its standard output is at its end
	ended   bool
}

// startProcess starts a consumer of the fixture's route in a process of its own. It hangs at a point of the handling of
// an event, after as many others, unless that is nowhere. With outputs, its handler returns messages to their topic.
//
// A broker that lives in the consumer's process starts empty, so its producer sends it everything again.
func (f *fixture) startProcess(t *testing.T, hang point, after int, out *outputs) *process {
	t.Helper()

	spec := childSpec{
		Route: f.route, DSN: f.db.DSN, Inbox: f.db.Inbox(), Effects: f.db.Table("effects"),
		Hang: hang, HangAfter: int64(after),
	}
	if out != nil {
		spec.Output = out.route
	}

	encoded, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	p := &process{told: newTally(), hanging: make(chan string, 1000), stderr: new(buffer), outputs: out}
	p.cmd = exec.Command(self)
	races := filepath.Join(t.TempDir(), "race")
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(encoded), "GORACE=exitcode=0 log_path="+races)
	p.cmd.Stderr = p.stderr

	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	if err := servers.StartTied(p.cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	p.read.Go(func() { p.listen(stdout) })

	t.Cleanup(func() {
		if !p.ended {
			p.kill(t)
		}

		requireNoRaces(t, races)

		if t.Failed() {
			t.Logf("end of what a consumer's process wrote:\n%s", p.stderr.end())
		}
	})

	if f.broker().inProcess() {
		p.send(t, f.events...)
	}

	return p
}

// requireNoRaces reads what the race detector wrote about a process. One race is let pass: the connection of
// watermill-amqp v3.1.0 replaces a channel without a lock when it reconnects.
func requireNoRaces(t *testing.T, logPath string) {
	t.Helper()

	const (
		separator = "=================="
		known     = "amqp.(*ConnectionWrapper).handleConnectionClose()"
	)

	logs, err := filepath.Glob(logPath + ".*") // the process's id is appended
	if err != nil {
		t.Fatal(err)
	}

	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}

		for report := range strings.SplitSeq(string(text), separator) {
			if strings.Contains(report, "DATA RACE") && !strings.Contains(report, known) {
				t.Errorf("a consumer's process has a data race:\n%s", report)
			}
		}
	}
}

// listen counts what the process tells.
func (p *process) listen(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		what, about, _ := strings.Cut(lines.Text(), " ")

		switch what {
		case "processed":
			p.told.count(p.told.processed, about)
		case "duplicate":
			p.told.count(p.told.duplicate, about)
		case "failed":
			p.told.count(p.told.failed, about)
		case "published":
			p.published.Add(1)
		case "refused":
			p.refused.Add(1)
		case "hangs":
			p.hanging <- about
		case "output":
			event, uuid, _ := strings.Cut(about, " ")
			p.outputs.add(event, uuid)
		}
	}
}

// send has the process publish events to its route, each until the broker takes it.
func (p *process) send(t *testing.T, events ...string) {
	t.Helper()

	for _, event := range events {
		if _, err := fmt.Fprintln(p.stdin, event); err != nil {
			t.Fatal(err)
		}
	}
}

// kill ends the process as the kernel does when memory runs out.
func (p *process) kill(t *testing.T) {
	t.Helper()

	p.ended = true

	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}

	p.read.Wait()
	_ = p.cmd.Wait()

	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process was not killed: %s", p.cmd.ProcessState)
	}
}

// stop has the process close its router and end.
func (p *process) stop(t *testing.T) {
	t.Helper()

	p.ended = true

	if err := p.stdin.Close(); err != nil {
		t.Error(err)
	}

	p.read.Wait()

	if err := p.cmd.Wait(); err != nil {
		t.Errorf("consumer's process: %v", err)
	}
}
