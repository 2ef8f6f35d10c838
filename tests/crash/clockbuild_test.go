package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// clockOffset is the environment variable with the seconds by which the clock of a clockedWorker is wrong.
const clockOffset = "WORKER_CLOCK_OFFSET"

// buildClocked builds a worker whose wall clock can be wrong: package time is compiled from a changed copy, so that
// time.Now is wrong everywhere in the process, the standard library and drivers included, and the monotonic clock is right, as
// on a machine whose clock was never set.
//
// Nothing easier does it. libfaketime replaces functions of the C library, which Go does not call: a Go program under faketime
// shows the right time. Linux's time namespaces have offsets for the monotonic and the boot-time clock only.
func buildClocked() (string, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}

	original := filepath.Join(string(bytes.TrimSpace(goroot)), "src", "time", "time.go")

	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}

	const now, shifted = "sec, nsec, mono := runtimeNow()\n\tif", "sec, nsec, mono := runtimeNow()\n\tsec += offset\n\tif"
	if bytes.Count(source, []byte(now)) != 1 {
		return "", errors.New("time.Now of this version of Go is not as it was: change how its clock is made wrong")
	}

	source = bytes.Replace(source, []byte(now), []byte(shifted), 1)
	source = bytes.Replace(source, []byte("import (\n"), []byte("import (\n\t\"syscall\"\n"), 1)
	source = fmt.Appendf(source, `
var offset = func() int64 {
	text, _ := syscall.Getenv(%q)
	n, _ := atoi(text)

	return int64(n)
}()
`, clockOffset)

	changed, list := filepath.Join(programs, "time.go"), filepath.Join(programs, "overlay.json")

	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}

	if err := errors.Join(os.WriteFile(changed, source, 0o600), os.WriteFile(list, overlay, 0o600)); err != nil {
		return "", err
	}

	return build("clocked", "-overlay", list)
}
