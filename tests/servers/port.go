package servers

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Servers listen below the range from which the kernel takes the ports of
// outgoing connections (32768 and up). Inside that range a client that keeps
// dialing a stopped server can be given the very port it dials, connect to
// itself, and so keep the server from starting again.
const firstPort, lastPort = 20000, 29999

// reservations keeps the port locks open for the life of this process.
var reservations struct {
	sync.Mutex
	locks []io.Closer
}

// reservePort returns a port of 127.0.0.1 that is free and that no other
// process using this package is given, even while nothing listens on it. The
// lock is an abstract Unix socket: it leaves no file behind and goes away with
// this process.
func reservePort() int {
	reservations.Lock()
	defer reservations.Unlock()

	const count = lastPort - firstPort + 1
	offset := rand.IntN(count)
	for i := range count {
		port := firstPort + (offset+i)%count
		lock, err := net.Listen("unix", fmt.Sprintf("@watermill-inbox-port-%d", port))
		if err != nil {
			continue
		}
		probe, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			lock.Close()
			continue
		}
		probe.Close()
		reservations.locks = append(reservations.locks, lock)
		return port
	}
	panic(fmt.Sprintf("servers: no free port between %d and %d", firstPort, lastPort))
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// exchange connects to a port, sends a request and reads len(reply) bytes, all
// within a second. Readiness probes speak the first words of a protocol
// with it.
func exchange(ctx context.Context, port int, request, reply []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", loopback(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, reply)
	return err
}
