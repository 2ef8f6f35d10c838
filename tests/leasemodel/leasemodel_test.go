package leasemodel

import "testing"

// limit is far above what the scenarios need.
const limit = 2_000_000

var (
	plainHandlers = scenario{name: "plain handlers", events: 1, slots: 2, plain: true, maxAttempts: 2, misfortunes: 4}
	transactions  = scenario{name: "transactions", events: 1, slots: 2, inTx: true, maxAttempts: 2, misfortunes: 4}
	bothModes     = scenario{name: "both modes", events: 1, slots: 2, inTx: true, sameTx: true, maxAttempts: 2, misfortunes: 3}
	lane          = scenario{name: "lane", events: 2, slots: 2, lane: true, plain: true, maxAttempts: 1, misfortunes: 4}
	laneWithInTx  = scenario{name: "lane with InTx", events: 2, slots: 1, lane: true, inTx: true, maxAttempts: 2, misfortunes: 3}
	longLane      = scenario{name: "long lane", events: 3, slots: 1, lane: true, plain: true, maxAttempts: 1, misfortunes: 3}
)

func TestNoScheduleCompletesAnEventTwiceOrLeavesItUnclaimable(t *testing.T) {
	t.Parallel()

	for _, sc := range []scenario{plainHandlers, transactions, bothModes, lane, laneWithInTx, longLane} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()

			if found := search(t, model{scenario: sc}); found != nil {
				t.Error(found)
			}
		})
	}
}

func TestEveryRuleOfTheProtocolIsNeeded(t *testing.T) {
	t.Parallel()

	const (
		intruded     = "a delivery that had lost its lease changed the tables"
		twice        = "its effects were committed twice"
		lostOutputs  = "its outputs are lost"
		twoActive    = "two rows of one lane are active"
		twoLeased    = "two rows of one lane are leased"
		noneActive   = "a lane has rows and none is active"
		unclaimable  = "an event can be neither finished nor found among the dead"
		goneForGood  = "its payload is gone"
		neverDue     = "a row is neither dead nor due"
		uncounted    = "1 handlers saw it, and 0 attempts were counted"
		ackedTooSoon = "it was acked before it was stored"
	)

	for _, test := range []struct {
		name     string
		rules    rules
		scenario scenario
		reason   string
	}{
		{"the broker is acked before the commit", rules{ackBeforeCommit: true}, plainHandlers, ackedTooSoon},
		{"a redelivery is stored without a look at the ledger", rules{storeUnseen: true}, plainHandlers, "it was completed twice"},
		{"a stored row does not look at its lane", rules{storeActive: true}, lane, twoActive},
		{"a lane is read before it is locked, to store", rules{lookBeforeStore: true}, lane, twoActive},
		{"a lane is read before it is locked, to promote", rules{lookBeforePromote: true}, lane, noneActive},
		{"a claim does not heed row locks", rules{claimLocked: true}, transactions, intruded},
		{"attempts are counted when they fail", rules{claimUncounted: true}, plainHandlers, "its attempts are 0, not 1"},
		{"a lease never ends", rules{leasesStay: true}, plainHandlers, unclaimable},
		{"the fence is the owner", rules{fenceByOwner: true}, plainHandlers, intruded},
		{"the fence has attempts, which a give back sent twice resets", rules{fenceByAttempts: true}, plainHandlers, intruded},
		{"the fence has attempts, which a requeue resets", rules{fenceByAttempts: true}, lane, intruded},
		{"completing has no fence", rules{completeUnfenced: true}, plainHandlers, intruded},
		{"failing has no fence", rules{failUnfenced: true}, plainHandlers, intruded},
		{"renewing has no fence", rules{renewUnfenced: true}, plainHandlers, intruded},
		{"InTx has no fence", rules{inTxUnfenced: true}, transactions, intruded},
		{"InTx does not lock the row", rules{inTxUnlocked: true}, transactions, intruded},
		{"InTx does not look at the ledger", rules{trustClaim: true}, transactions, twice},
		{"the effect comes before the lock", rules{effectBeforeLock: true}, transactions, intruded},
		{"the row leaves with the effect", rules{deleteInTx: true}, transactions, lostOutputs},
		{"a message is given back that a handler took", rules{giveBackTaken: true}, plainHandlers, uncounted},
		{"a failed attempt is not counted", rules{forgetCount: true}, plainHandlers, "its attempts are 0, not 1"},
		{"the dead are deleted", rules{buryDead: true}, plainHandlers, goneForGood},
		{"a row claimed too often is left where it is", rules{dropExhausted: true}, plainHandlers, neverDue},
		{"discarding leaves the ledger row as it is", rules{discardOpen: true}, plainHandlers, goneForGood},
		{"nobody is promoted at a completion", rules{stayAtComplete: true}, lane, noneActive},
		{"nobody is promoted at a death", rules{stayAtDeath: true}, lane, noneActive},
		{"the newest is promoted", rules{promoteNewest: true}, longLane, "it was processed before e2"},
		{"a requeued row does not look at its lane", rules{requeueActive: true}, lane, twoActive},
		{"requeueing parks a leased row", rules{parkLeased: true}, lane, twoLeased},
		{"requeueing parks a row whose lease ended, with its owner", rules{parkExpired: true}, laneWithInTx, twoActive},
		{"a takeover does not heed row locks", rules{takeOverLocked: true}, bothModes, twice},
		{"a takeover does not look at the ledger again", rules{takeOverUnchecked: true}, bothModes, twice},
		{"a takeover deletes the row with its effect", rules{takeOverDeletes: true}, bothModes, lostOutputs},
		{"a duplicate with stored outputs is acked and left", rules{ackUnpublished: true}, bothModes, lostOutputs},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			found := search(t, model{scenario: test.scenario, rules: test.rules})
			if found == nil || !found.because(test.reason) {
				t.Fatalf("want a schedule after which %s, got %v", test.reason, found)
			}

			t.Log(found)
		})
	}
}

// search explores a model to the end, or to the first state that breaks a property.
func search(t *testing.T, m model) *violation[state, step] {
	t.Helper()

	g, found, err := explore(m.initial(), limit, m.next, m.check)
	if err != nil {
		t.Fatal(err)
	}

	if found == nil {
		found = g.stuck(m.settled, "an event can be neither finished nor found among the dead")
	}

	t.Logf("%d states, %d transitions", len(g.states), len(g.to))

	return found
}
