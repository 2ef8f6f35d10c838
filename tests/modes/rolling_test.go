package modes_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// Both modes work on one consumer at the same time, as machine after machine is deployed, and the broker delivers to
// either of them what the other one has had, or has.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()

	for name, handler := range map[string]func(*testdb.DB) message.HandlerFunc{"TxFromContext": byTx, "InTx": byInTx} {
		for _, way := range [][2]mode{{sameTx, stored}, {stored, sameTxWithBacklog}} {
			forEachEngine(t, fmt.Sprintf("%s, from %s to %s", name, way[0], way[1]), func(t *testing.T, db *testdb.DB) {
				w, l := newWorld(t, db), newLuck(t)
				ids := numbered(1, 20)

				old := []*deployment{
					w.deploy(t, way[0], handling(handler(db)), l.flaky), w.deploy(t, way[0], handling(handler(db)), l.flaky),
				}
				first := w.deploy(t, way[1], handling(handler(db)), l.flaky)

				for _, d := range append(old, first) {
					d.send(t, l.shuffled(ids)...)
				}

				require.Eventually(t, "a few are handled", func() bool { return len(w.Effects(t)) >= 5 })
				old[0].stop(t)

				second := w.deploy(t, way[1], handling(handler(db)), l.flaky)
				delivered := []chan struct{}{second.send(t, l.shuffled(ids)...), first.send(t, l.shuffled(ids)...)}

				require.Eventually(t, "some more are handled", func() bool { return len(w.Effects(t)) >= 10 })
				old[1].stop(t)

				delivered = append(delivered, first.send(t, l.shuffled(ids)...))
				for _, acked := range delivered {
					require.Await(t, "the acks", acked)
				}

				w.awaitNothingStored(t)
				w.requirePublished(t, ids...)
				w.RequireOnce(t, ids...)
			})
		}
	}
}

// numbered names n events.
func numbered(first, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%03d", first+i)
	}

	return ids
}

// A service moves back and forth between the modes, each time with messages in flight, of which some fail, some are
// committed and not published, and many are delivered again.
func TestBackAndForth(t *testing.T) {
	t.Parallel()

	for name, handler := range map[string]func(*testdb.DB) message.HandlerFunc{"TxFromContext": byTx, "InTx": byInTx} {
		for _, last := range []mode{stored, sameTxWithBacklog} {
			forEachEngine(t, fmt.Sprintf("%s, to %s in the end", name, last), func(t *testing.T, db *testdb.DB) {
				const lives, perLife = 6, 5

				w, l := newWorld(t, db), newLuck(t)
				modes := []mode{sameTx, stored}

				var ids []string

				for life := range lives {
					before := len(w.Effects(t))
					d := w.deploy(t, modes[life%2], handling(handler(db)), l.flaky)
					fresh := numbered(1+len(ids), perLife)
					again := l.shuffled(ids)
					d.send(t, fresh...)
					d.send(t, again[:l.intN(len(again)+1)]...)
					d.send(t, fresh[l.intN(perLife):]...)
					ids = append(ids, fresh...)

					enough := before + 1 + l.intN(perLife)
					require.Eventually(t, "some are handled", func() bool { return len(w.Effects(t)) >= enough })
					d.stop(t)
				}

				d := w.deploy(t, last, handling(handler(db)))
				d.deliver(t, ids...)

				w.awaitNothingStored(t)
				w.requirePublished(t, ids...)
				w.RequireOnce(t, ids...)
			})
		}
	}
}
