package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// payload is what every stored event carries, 256 bytes of JSON's plain characters.
var payload = strings.Repeat("x", 256)

func newIDs(n int) ([]string, error) {
	ids := make([]string, n)

	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}

		ids[i] = id.String()
	}

	return ids, nil
}

// each makes a run of one call for each new event, so many of them at once, for so long.
func each(flight int, duration time.Duration, do func(ctx context.Context, id string) error) func(context.Context, *meter) error {
	return batches(flight, 1, duration, func(ctx context.Context, ids []string) error { return do(ctx, ids[0]) })
}

// batches makes a run of one call for so many new events, by so many writers at once, for so long.
func batches(
	writers, size int, duration time.Duration, do func(ctx context.Context, ids []string) error,
) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		if err := m.start(ctx); err != nil {
			return err
		}

		var (
			done atomic.Int64
			end  = time.Now().Add(duration)
		)

		group, groupCtx := errgroup.WithContext(ctx)
		for range writers {
			group.Go(func() error {
				for time.Now().Before(end) && groupCtx.Err() == nil {
					ids, err := newIDs(size)
					if err != nil {
						return err
					}

					if err := do(context.WithoutCancel(ctx), ids); err != nil {
						return err
					}

					done.Add(int64(size))
				}

				return groupCtx.Err()
			})
		}

		if err := group.Wait(); err != nil {
			return err
		}

		return m.stop(ctx, done.Load())
	}
}
