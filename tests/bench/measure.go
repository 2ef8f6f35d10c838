package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// comparison is a set of variants that do the same work and take turns. The first is what the others are compared with.
type comparison struct {
	title    string
	reset    func(ctx context.Context) error // before every run
	variants []variant
}

// variant is one way to do the work.
type variant struct {
	name string
	aim  float64 // what its ratio to the first variant should be at least; 0 without an aim
	run  func(ctx context.Context, m *meter) error
}

// measure returns the samples of each variant, one for each round.
func (c comparison) measure(ctx context.Context, m *meter, rounds int) ([][]sample, error) {
	samples := make([][]sample, len(c.variants))

	for round := -1; round < rounds; round++ { // round -1 warms up
		for i := range c.variants {
			v := (i + round + 1) % len(c.variants)

			if err := c.reset(ctx); err != nil {
				return nil, fmt.Errorf("before %s: %w", c.variants[v].name, err)
			}

			if err := c.variants[v].run(ctx, m); err != nil {
				return nil, fmt.Errorf("%s: %w", c.variants[v].name, err)
			}

			if round >= 0 {
				samples[v] = append(samples[v], m.sample)
			}
		}
	}

	return samples, nil
}

// ratio compares a variant with the first one, round by round.
type ratio struct{ median, least, most float64 }

func ratioOf(samples [][]sample, v int) ratio {
	ratios := make([]float64, len(samples[v]))
	for round := range ratios {
		ratios[round] = samples[v][round].rate / samples[0][round].rate
	}

	return ratio{median(ratios), slices.Min(ratios), slices.Max(ratios)}
}

func (r ratio) String() string {
	return fmt.Sprintf("%.2f [%.2f %.2f]", r.median, r.least, r.most)
}

func (c comparison) table(samples [][]sample) string {
	var b strings.Builder

	fmt.Fprintf(&b, "\n%s\n  %-24s %9s   %-22s %11s %7s %5s %12s\n", c.title, "", "events/s", "of the first [min max]",
		"CPU%: bench", "server", "idle", "WAL B/event")

	for v := range c.variants {
		column := func(of func(sample) float64) float64 {
			values := make([]float64, len(samples[v]))
			for round, s := range samples[v] {
				values[round] = of(s)
			}

			return median(values)
		}

		fmt.Fprintf(&b, "  %-24s %9.0f   %-22s %11.0f %7.0f %5.0f %12.0f\n", c.variants[v].name,
			column(func(s sample) float64 { return s.rate }), ratioOf(samples, v),
			column(func(s sample) float64 { return s.client }), column(func(s sample) float64 { return s.server }),
			column(func(s sample) float64 { return s.idle }), column(func(s sample) float64 { return s.wal }))
	}

	return b.String()
}

// aims says what came of the variants that have one.
func (c comparison) aims(samples [][]sample) string {
	var b strings.Builder

	for v, variant := range c.variants {
		if variant.aim == 0 {
			continue
		}

		r, verdict := ratioOf(samples, v), "met"
		if r.median < variant.aim {
			verdict = "MISSED"
		}

		fmt.Fprintf(&b, "  %-62s %-20s aim >= %-4g %s\n",
			fmt.Sprintf("%s: %s / %s", c.title, variant.name, c.variants[0].name), r, variant.aim, verdict)
	}

	return b.String()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return math.NaN()
	}

	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
