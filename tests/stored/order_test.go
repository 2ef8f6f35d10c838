package stored_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// byLetters has the letters in front of an event's number for its ordering key.
var byLetters = inbox.WithOrderingKey(func(msg *message.Message) string { return keyOfID(msg.UUID) })

func keyOfID(id string) string { return strings.TrimRight(id, "0123456789") }

// ordered watches handlers of messages with ordering keys.
type ordered struct {
	mu      sync.Mutex
	running map[string]string   // event by key
	done    map[string][]string // events by key
}

// handle acks three of four messages.
func (o *ordered) handle(t testing.TB, db *testdb.DB, msg *message.Message) {
	t.Helper()
	o.run(t, msg, func() (ack bool) {
		if rand.IntN(4) == 0 {
			return false
		}

		if err := write(db, msg, nil); err != nil {
			t.Errorf("%s: %v", msg.UUID, err)
		}

		return true
	})
}

// run acks a message or nacks it as work says.
func (o *ordered) run(t testing.TB, msg *message.Message, work func() (ack bool)) {
	t.Helper()

	key := keyOfID(msg.UUID)

	o.mu.Lock()
	if other := o.running[key]; other != "" {
		t.Errorf("%s and %s are handled at the same time", other, msg.UUID)
	}
	o.running[key] = msg.UUID
	o.mu.Unlock()

	ack := work()

	o.mu.Lock()
	delete(o.running, key)

	if ack {
		o.done[key] = append(o.done[key], msg.UUID)
	}
	o.mu.Unlock()

	if ack {
		msg.Ack()
	} else {
		msg.Nack()
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()

	for name, processes := range map[string]int{"one process": 1, "two processes": 2} {
		forEachEngine(t, "of a key is one at a time and as stored, with nacks, in "+name, func(t *testing.T, db *testdb.DB) {
			const keys, each = 5, 8

			var ids []string
			for i := range each {
				for key := range keys {
					ids = append(ids, fmt.Sprintf("%c%d", 'a'+key, i+1))
				}
			}

			var handlers sync.WaitGroup

			t.Cleanup(handlers.Wait) // which comes after the processes are closed

			o := &ordered{running: make(map[string]string), done: make(map[string][]string)}
			options := []inbox.SubscriberOption{byLetters, retryAtOnce, inbox.WithConcurrency(8), inbox.WithMaxAttempts(1000)}
			first := start(t, db.New(t), options...)
			all := []*process{first}

			for range processes - 1 {
				all = append(all, startBacklog(t, another(t, db).New(t), options...))
			}

			for _, p := range all {
				for range 8 {
					handlers.Go(func() {
						for msg := range p.messages {
							o.handle(t, db, msg)
						}
					})
				}
			}

			first.store(t, ids...)
			awaitFinished(t, db, ids...)
			db.RequireOnce(t, ids...)

			o.mu.Lock()
			defer o.mu.Unlock()

			for key, done := range o.done {
				require.Equal(t, "order of "+key, done, numbered(key, each))
			}
		})
	}

	forEachEngine(t, "of a batch is that of its arrival", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters)
		awaitHeld, release := holdStores(t, db)

		sent := deliveries("x1", "k3", "k1", "k2", "j2", "j1")
		p.broker.send(t, orders, sent[0])
		awaitHeld()
		p.broker.send(t, orders, sent[1:]...)
		release()
		requireAcked(t, sent...)

		order := make(map[string]string)

		for range sent {
			msg := p.next(t)
			order[msg.UUID[:1]] += msg.UUID[1:]
			msg.Ack()
		}

		require.Equal(t, "order by key", order, map[string]string{"x": "1", "k": "312", "j": "21"})
	})

	forEachEngine(t, "of a key holds while one of its messages waits for its next attempt", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters, retryNever)
		p.store(t, "k1", "k2")
		p.next(t).Nack()
		awaitRow(t, db, "k1", "k1 waits", func(r row) bool { return r.owner == "" && time.Until(r.due) > time.Minute })

		p.store(t, "j1")
		p.requireHandedOut(t, "j1")
		require.Equal(t, "attempts of k2", stored(t, db, "k2").attempts, 0)

		setDue(t, db, "k1", -time.Second)
		p.requireHandedOut(t, "k1", "k2")
	})

	forEachEngine(t, "is not held up by a dead message", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters, inbox.WithMaxAttempts(1))
		p.store(t, "k1", "k2", "k3")
		p.next(t).Nack()
		p.requireHandedOut(t, "k2", "k3")
		awaitFinished(t, db, "k2", "k3")
		require.Equal(t, "dead", stored(t, db, "k1").dead, true)
	})

	// Wolverine 986
	forEachEngine(t, "puts a requeued message behind the one that is being handled and before those stored later", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters, inbox.WithMaxAttempts(1))
		p.store(t, "k1", "k2", "k3", "k4")
		p.next(t).Nack()
		p.next(t).Nack()

		k3 := p.next(t)
		require.Equal(t, "message", k3.UUID, "k3")

		dead, err := p.Dead(t.Context(), 10)
		require.OK(t, err)
		require.Equal(t, "dead letters", len(dead), 2)

		n, err := p.Requeue(t.Context(), dead[1].Key, dead[0].Key)
		require.OK(t, err)
		require.Equal(t, "requeued", n, 2)
		p.store(t, "j1", "k5")
		p.requireHandedOut(t, "j1")

		for _, id := range []string{"k1", "k2", "k4", "k5"} {
			require.Equal(t, "attempts of "+id, stored(t, db, id).attempts, 0)
		}

		k3.Ack()
		p.requireHandedOut(t, "k1", "k2", "k4", "k5")
	})

	forEachEngine(t, "puts a requeued message before one that waits for its next attempt", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters, retryNever, inbox.WithMaxAttempts(2))
		p.store(t, "k1", "k2")
		p.next(t).Nack()
		awaitRelease(t, db, "k1")
		setDue(t, db, "k1", -time.Second)
		p.next(t).Nack()

		k2 := p.next(t)
		require.Equal(t, "message", k2.UUID, "k2")
		k2.Nack()
		awaitRow(t, db, "k2", "k2 waits", func(r row) bool { return r.owner == "" && time.Until(r.due) > time.Minute })

		dead, err := p.Dead(t.Context(), 1)
		require.OK(t, err)
		_, err = p.Requeue(t.Context(), dead[0].Key)
		require.OK(t, err)

		k1 := p.next(t)
		require.Equal(t, "message", k1.UUID, "k1")
		require.Equal(t, "attempts of k2", stored(t, db, "k2").attempts, 1)
		k1.Ack()
		p.requireHandedOut(t, "k2")
	})

	forEachEngine(t, "does not bind messages without a key", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters)
		p.store(t, "1", "2", "3")

		together := map[string]bool{p.next(t).UUID: true, p.next(t).UUID: true, p.next(t).UUID: true} // none is answered
		require.Equal(t, "messages in hand", len(together), 3)
	})

	forEachEngine(t, "is of a topic: the same key on another is another", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters)
		refunds := subscribe(t, p.subscriber, "refunds")
		p.store(t, "k1")
		p.next(t) // and is not answered

		sent := delivery("k1")
		p.broker.send(t, "refunds", sent)
		requireAcked(t, sent)
		nextOf(t, refunds).Ack()
	})

	forEachEngine(t, "of what was stored with keys is kept when the option is removed", func(t *testing.T, db *testdb.DB) {
		p1 := start(t, db.New(t), byLetters)
		ids := append(numbered("k", 5), numbered("j", 5)...)
		p1.store(t, ids...)
		p1.close(t)

		p2 := start(t, another(t, db).New(t), inbox.WithConcurrency(8))
		p2.store(t, "k6") // has no key

		order := make(map[string]string)

		for range len(ids) + 1 {
			msg := p2.next(t)
			if msg.UUID != "k6" {
				order[msg.UUID[:1]] += msg.UUID[1:]
			}

			require.OK(t, write(db, msg, nil))
			msg.Ack()
		}

		require.Equal(t, "order by key", order, map[string]string{"k": "12345", "j": "12345"})
		awaitFinished(t, db, append(ids, "k6")...)
	})

	forEachEngine(t, "goes on after a process that died in the middle", func(t *testing.T, db *testdb.DB) {
		p1 := start(t, db.New(t), byLetters)
		p1.store(t, "k1", "k2", "k3")
		p1.next(t)
		steal(t, db, "k1", time.Hour) // by the one that dies
		p1.close(t)

		p2 := start(t, another(t, db).New(t), byLetters)
		p2.store(t, "j1")
		p2.requireHandedOut(t, "j1")
		setDue(t, db, "k1", -time.Second)
		p2.requireHandedOut(t, "k1", "k2", "k3")
	})

	forEachEngine(t, "of a key is one at a time while its messages die and are requeued, and none is forgotten", func(t *testing.T, db *testdb.DB) {
		const deaths = 200

		var handlers sync.WaitGroup

		t.Cleanup(handlers.Wait) // which comes after the processes are closed

		var (
			ids     = append(numbered("k", 5), numbered("j", 5)...)
			options = []inbox.SubscriberOption{byLetters, inbox.WithMaxAttempts(1)}
			first   = start(t, db.New(t), options...)
			second  = startBacklog(t, another(t, db).New(t), options...)
			o       = &ordered{running: make(map[string]string), done: make(map[string][]string)}
			died    atomic.Int64
		)

		for _, p := range []*process{first, second} {
			for range 4 {
				handlers.Go(func() {
					for msg := range p.messages {
						o.run(t, msg, func() (ack bool) {
							return died.Add(1) > deaths && write(db, msg, nil) == nil
						})
					}
				})
			}
		}

		first.store(t, ids...)

		for deadline := time.Now().Add(require.Patience); unfinished(t, db) > 0; {
			if time.Now().After(deadline) {
				t.Fatalf("%d events are not finished after %d attempts", unfinished(t, db), died.Load())
			}

			dead, err := second.Dead(t.Context(), len(ids))
			require.OK(t, err)

			_, err = second.Requeue(t.Context(), keysOf(dead)...)
			require.OK(t, err)
		}

		db.RequireOnce(t, ids...)
	})
}
