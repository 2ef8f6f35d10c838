package brokers

import "testing"

func TestProcessKilledBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		f.publishFor(t, 40)

		var killed []string

		for _, after := range []int{5, 10} {
			p := f.startProcess(t, afterCommit, after, nil)
			event := receive(t, "a commit", p.hanging)
			p.kill(t)

			if n := f.db.Effects(t)[event]; n != 1 {
				t.Errorf("%s has %d effects after its commit", event, n)
			}

			killed = append(killed, event)
		}

		p := f.startProcess(t, nowhere, 0, nil)
		f.awaitEffects(t, 40)
		p.awaitDuplicateOf(t, killed[len(killed)-1])
		p.stop(t)
		f.requireOnce(t)
	})
}

func TestProcessKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		f.publishFor(t, 40)

		for _, after := range []int{5, 10} {
			p := f.startProcess(t, beforeCommit, after, nil)
			event := receive(t, "a written row", p.hanging)
			p.kill(t)

			if n := f.db.Effects(t)[event]; n != 0 {
				t.Errorf("%s has %d effects without a commit", event, n)
			}
		}

		p := f.startProcess(t, nowhere, 0, nil)
		f.awaitEffects(t, 40)
		p.stop(t)
		f.requireOnce(t)
	})
}

// Two processes of one group get every event twice, with different message UUIDs, and one of them is killed. Processes
// that share no broker get everything both.
func TestTwoProcessesShareTheWorkAndOneIsKilled(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		first := f.startProcess(t, nowhere, 0, nil)
		second := f.startProcess(t, nowhere, 0, nil)

		// A rebalance may take a while, and what the other one handles is gone.
		await(t, "both to work", func() bool {
			if f.backlog(first, second) < 20 {
				f.sendTwice(t, f.newEvents(20), first, second)
			}

			return first.told.acked() >= 20 && second.told.acked() >= 20
		})
		f.sendTwice(t, f.newEvents(20), first, second)
		first.kill(t)
		f.sendTwice(t, f.newEvents(20), second)

		third := f.startProcess(t, nowhere, 0, nil)
		f.awaitEffects(t, len(f.events))

		if b.inProcess() {
			await(t, "every delivery to be acked", func() bool { return f.backlog(second) <= 0 })
		} else {
			await(t, "every delivery to be acked", func() bool { return f.backlog(first, second, third) <= 0 })
		}

		second.stop(t)
		third.stop(t)
		f.requireOnce(t)
	})
}

// backlog returns how many sendings no process has reported as acked.
func (f *fixture) backlog(processes ...*process) int {
	acked := 0
	for _, p := range processes {
		acked += p.told.acked()
	}

	return 2*len(f.events) - acked
}

// sendTwice sends every event in two messages, to the broker or to each of the brokers inside of the processes.
func (f *fixture) sendTwice(t *testing.T, events []string, processes ...*process) {
	t.Helper()

	for range 2 {
		if !f.broker().inProcess() {
			f.send(t, events...)

			continue
		}

		for _, p := range processes {
			p.send(t, events...)
		}
	}
}

// publishFor sends n new events to the broker; one that lives in a consumer's process gets them when that starts.
func (f *fixture) publishFor(t *testing.T, n int) {
	t.Helper()

	if events := f.newEvents(n); !f.broker().inProcess() {
		f.send(t, events...)
	}
}

// awaitDuplicateOf waits until the process was given an event that is handled already.
func (p *process) awaitDuplicateOf(t *testing.T, event string) {
	t.Helper()
	await(t, "the redelivery of "+event, func() bool { return p.told.duplicatesOf(event) > 0 })
}
