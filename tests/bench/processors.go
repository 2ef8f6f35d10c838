package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// processors tells what the processors did so far. It is read from Linux's /proc and stays zero on other systems.
type processors struct {
	client, server, idle time.Duration
}

func (p processors) since(before processors) processors {
	return processors{p.client - before.client, p.server - before.server, p.idle - before.idle}
}

// tick is the unit of /proc, USER_HZ, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func readProcessors(postmaster int) (p processors) {
	self := os.Getpid()

	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}

		fields := procFields(path)
		if len(fields) < 15 {
			continue // it has ended
		}

		used := ticks(fields[11]) + ticks(fields[12])

		switch {
		case pid == self:
			p.client += used
		case pid == postmaster: // with its children that have ended
			p.server += used + ticks(fields[13]) + ticks(fields[14])
		case fields[1] == strconv.Itoa(postmaster):
			p.server += used
		}
	}

	if total := strings.Fields(firstLine("/proc/stat")); len(total) > 5 {
		p.idle = ticks(total[4]) + ticks(total[5]) // idle, and idle with a disk at work
	}

	return p
}

// procFields returns the fields of /proc/PID/stat from the third on; the second is a name and may contain anything.
func procFields(path string) []string {
	line := firstLine(path)

	return strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
}

func firstLine(path string) string {
	content, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(content), "\n")

	return line
}

func ticks(field string) time.Duration {
	n, _ := strconv.ParseInt(field, 10, 64)

	return time.Duration(n) * tick
}
