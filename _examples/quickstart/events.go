package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

//go:embed events.jsonl
var builtinEvents string

// orderEvent is a line of the events file: something that a customer is charged for.
type orderEvent struct {
	Source      string `json:"source"`
	ID          string `json:"id"`
	Type        string `json:"type"`
	OrderID     string `json:"order_id"`
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

func (ev orderEvent) validate() error {
	switch {
	case ev.ID == "":
		return errors.New(`"id" is missing or empty`)
	case ev.Customer == "":
		return errors.New(`"customer" is missing or empty`)
	case ev.AmountCents <= 0:
		return errors.New(`"amount_cents" is missing or not positive`)
	default:
		return nil
	}
}

// identity is what makes two lines the same event. Two tills may both have a receipt number 4711.
type identity struct{ source, id string }

func (ev orderEvent) identity() identity { return identity{ev.Source, ev.ID} }

// eventFile is the content of an events file. A line that repeats source and id of an earlier one is a repeated
// delivery of that event, as the earlier line has it.
type eventFile struct {
	name    string
	events  []orderEvent
	lines   []orderEvent // events and their repetitions, in the order of the file
	repeats int
}

// loadEvents reads a file of one JSON object per line. Without a path it takes the events that come with the program.
func loadEvents(path string) (*eventFile, error) {
	if path == "" {
		return parseEvents("events.jsonl", strings.NewReader(builtinEvents))
	}

	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return parseEvents(path, f)
}

func parseEvents(name string, r io.Reader) (*eventFile, error) {
	const longestLine = 1 << 20

	var (
		file  = &eventFile{name: name}
		known = make(map[identity]orderEvent)
		lines = bufio.NewScanner(r)
		n     int
	)

	lines.Buffer(nil, longestLine)

	for lines.Scan() {
		n++

		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" {
			continue
		}

		var ev orderEvent
		if err := json.Unmarshal([]byte(text), &ev); err != nil {
			return nil, fmt.Errorf("%s:%d: not an event: %w", name, n, explain(err))
		}

		if err := ev.validate(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}

		if first, ok := known[ev.identity()]; ok {
			ev = first
			file.repeats++
		} else {
			known[ev.identity()] = ev
			file.events = append(file.events, ev)
		}

		file.lines = append(file.lines, ev)
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}

	if len(file.events) == 0 {
		return nil, fmt.Errorf("%s: no events in it", name)
	}

	return file, nil
}

// explain puts encoding/json's most common complaint into words of JSON.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return fmt.Errorf("%q must not be a JSON %s", mismatch.Field, mismatch.Value)
	}

	return err
}
