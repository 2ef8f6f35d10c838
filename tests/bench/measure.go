package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// measure returns the rates of each variant, in events per second, one for each round.
func measure(ctx context.Context, db *sql.DB, set settings, flight int, variants []variant) ([][]float64, error) {
	rates := make([][]float64, len(variants))

	for round := -1; round < set.rounds; round++ { // round -1 warms up
		for i := range variants {
			v := (i + round + 1) % len(variants)

			if _, err := db.ExecContext(ctx, `TRUNCATE bench.charges, bench.textbook`); err != nil {
				return nil, err
			}

			rate, err := run(ctx, variants[v], flight, set.duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", variants[v].name, err)
			}

			if round >= 0 {
				rates[v] = append(rates[v], rate)
			}
		}
	}

	return rates, nil
}

func run(ctx context.Context, v variant, flight int, duration time.Duration) (rate float64, err error) {
	var (
		handled atomic.Int64
		start   = time.Now()
		end     = start.Add(duration)
	)

	group, ctx := errgroup.WithContext(ctx)
	for range flight {
		group.Go(func() error {
			for time.Now().Before(end) && ctx.Err() == nil {
				id, err := uuid.NewV7()
				if err != nil {
					return err
				}

				if err := v.handle(context.WithoutCancel(ctx), id.String()); err != nil {
					return err
				}

				handled.Add(1)
			}

			return ctx.Err()
		})
	}

	err = group.Wait()

	return float64(handled.Load()) / time.Since(start).Seconds(), err
}

// table compares the variants with the first of them, round by round.
func table(variants []variant, rates [][]float64) string {
	var b strings.Builder

	fmt.Fprintf(&b, "  %-12s %10s   %s\n", "", "events/s", "of the floor: median [min max]")

	for v := range variants {
		ratios := make([]float64, len(rates[v]))
		for round := range rates[v] {
			ratios[round] = rates[v][round] / rates[0][round]
		}

		fmt.Fprintf(&b, "  %-12s %10.0f   %.2f [%.2f %.2f]\n", variants[v].name,
			median(rates[v]), median(ratios), slices.Min(ratios), slices.Max(ratios))
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

func statements(ddl string) []string {
	return strings.Split(ddl, ";\n")
}
