package brokers

import "testing"

// A service moves to another broker, whose topics are named differently, while a half of the events is still unread on
// the old one. The new one gets all of them, and at the end the old one is drained.
func TestMovingToAnotherBrokerHalfWay(t *testing.T) {
	t.Parallel()

	for _, from := range brokers {
		for _, to := range brokers {
			if from == to {
				continue
			}

			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()

				f := newFixture(t, from)
				f.publish(t, 20)

				stop := f.consumer().start(t)
				f.awaitEffects(t, 10)
				stop()

				old, handled := f.route, f.told.acked()
				f.route = newRoute(t, to, f.db)
				f.send(t, f.events...)
				f.drain(t, handled+20)

				f.route = old
				f.drain(t, 40)
				f.requireOnce(t)
			})
		}
	}
}

// drain runs a consumer until so many deliveries were acked altogether.
func (f *fixture) drain(t *testing.T, acked int) {
	t.Helper()

	stop := f.consumer().start(t)
	defer stop()

	await(t, "the topic to be empty", func() bool { return f.told.acked() >= acked })
}
