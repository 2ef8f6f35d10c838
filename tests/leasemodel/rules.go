package leasemodel

// rules are what can be taken out of the protocol, to see that it is needed. The zero value is the whole protocol.
type rules struct {
	ackBeforeCommit   bool // the broker is acked when a message arrives
	storeUnseen       bool // a redelivery is stored without a look at the ledger
	storeActive       bool // a row is stored as active whatever its lane has
	lookBeforeStore   bool // a lane is read before its lock is had: in one statement with it, or at REPEATABLE READ
	lookBeforePromote bool // the same when the active row completes
	claimLocked       bool // a claim does not heed row locks
	claimUncounted    bool // attempts are counted when they fail
	leasesStay        bool // only rows without an owner are claimed
	fenceByOwner      bool // a fence compares owners only
	fenceByAttempts   bool // a fence compares attempts, which requeue and give back reset, and not leases
	completeUnfenced  bool
	failUnfenced      bool
	renewUnfenced     bool
	inTxUnfenced      bool
	effectBeforeLock  bool // InTx runs the handler's writes in another transaction than its own
	inTxUnlocked      bool // InTx reads the row without locking it
	trustClaim        bool // InTx does not look at the ledger again
	deleteInTx        bool // the row leaves with the effect, not with the Ack
	giveBackTaken     bool // a message is given back although a handler took it
	forgetCount       bool // a failed attempt is not counted
	buryDead          bool // a message that had its last attempt is deleted
	discardOpen       bool // discarding does not mark the event as processed
	stayAtComplete    bool // nobody is promoted when the active row completes
	stayAtDeath       bool // or dies
	promoteNewest     bool // the wrong row is promoted
	requeueActive     bool // a requeued row does not look at its lane
	parkLeased        bool // requeueing parks the active row though it is leased
	parkExpired       bool // or though it has an owner whose lease ended
	dropExhausted     bool // a row claimed too often is neither handed out nor marked dead, and stays out of claims
	takeOverLocked    bool // the same-transaction mode does not heed locks
	takeOverUnchecked bool // or what became of the ledger row before it had the lock
	takeOverDeletes   bool // the row leaves with the effect, before outputs are published
	ackUnpublished    bool // a duplicate is acked although outputs of its first handling were never published
}
