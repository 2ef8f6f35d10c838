package stored_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// churn is a handler whose runs end in every way there is.
type churn struct {
	db   *testdb.DB
	runs atomic.Int32

	mu   sync.Mutex
	done map[string][]string // events whose effects are committed, by ordering key
}

func (c *churn) handle(t testing.TB, msg *message.Message) {
	t.Helper()

	defer c.runs.Add(1)

	switch rand.IntN(6) {
	case 0:
		msg.Nack()
	case 1:
		_ = write(c.db, msg, errBroken)
		msg.Nack()
	case 2: // as if the process had died and the lease had ended
		steal(t, c.db, msg.UUID, -time.Millisecond)
		msg.Nack()
	case 3:
		c.write(t, msg)
		msg.Nack()
	default:
		if c.write(t, msg) {
			msg.Ack()
		} else {
			msg.Nack()
		}
	}
}

func (c *churn) write(t testing.TB, msg *message.Message) bool {
	t.Helper()

	fresh := false
	err := inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
		fresh = true

		return insertEffect(c.db, tx, msg.UUID)
	})

	switch {
	case errors.Is(err, inbox.ErrLeaseLost):
		return false
	case err != nil:
		t.Errorf("%s: %v", msg.UUID, err)
	case fresh && keyOfID(msg.UUID) != "":
		c.mu.Lock()
		defer c.mu.Unlock()

		c.done[keyOfID(msg.UUID)] = append(c.done[keyOfID(msg.UUID)], msg.UUID)
	}

	return err == nil
}

func TestChurn(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "effects happen once and in order while processes come, go and die", func(t *testing.T, db *testdb.DB) {
		const keys, each = 4, 6

		var ids []string

		for i := range each {
			for key := range keys {
				ids = append(ids, fmt.Sprintf("%c%d", 'a'+key, i+1))
			}
		}

		ids = append(ids, "1", "2", "3", "4", "5", "6") // without a key

		options := []inbox.SubscriberOption{byLetters, retryAtOnce, safeLease, inbox.WithConcurrency(4), inbox.WithMaxAttempts(1000)}
		c := &churn{db: db, done: make(map[string][]string)}
		allFinished := func() bool {
			return unfinished(t, db) == 0
		}

		first := start(t, db.New(t), options...)
		first.store(t, ids...)
		first.close(t)

		for deadline := time.Now().Add(2 * require.Patience); !allFinished(); {
			if time.Now().After(deadline) {
				t.Fatal("there is no end")
			}

			var handlers sync.WaitGroup

			p, before := start(t, another(t, db).New(t), options...), c.runs.Load()

			for range 4 {
				handlers.Go(func() {
					for msg := range p.messages {
						c.handle(t, msg)
					}
				})
			}

			p.store(t, ids[rand.IntN(len(ids))], ids[rand.IntN(len(ids))]) // which are duplicates
			require.Eventually(t, "something is handled", func() bool { return c.runs.Load() >= before+10 || allFinished() })
			require.OK(t, closeAsync(t, p.subscriber))
			handlers.Wait()
		}

		db.RequireOnce(t, ids...)
		requireRecorded(t, db, len(ids))

		for key := range keys {
			name := fmt.Sprintf("%c", 'a'+key)
			require.Equal(t, "order of "+name, c.done[name], numbered(name, each))
		}
	})
}
