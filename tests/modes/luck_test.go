package modes_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// luck makes handlers and publishers fail by chance. It is safe for concurrent use.
type luck struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// newLuck logs its seed, which repeats the choices, though not the timing.
func newLuck(t *testing.T) *luck {
	t.Helper()

	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	return &luck{rng: rand.New(rand.NewPCG(seed, 0))}
}

func (l *luck) intN(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.rng.IntN(n)
}

func (l *luck) shuffled(ids []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	shuffled := make([]string, len(ids))
	for i, j := range l.rng.Perm(len(ids)) {
		shuffled[i] = ids[j]
	}

	return shuffled
}

var errUnlucky = errors.New("unlucky")

// flaky is a service whose handler fails before or after its effect, and whose publisher does, each a few times in ten.
func (l *luck) flaky(s *service) {
	handler := s.handle
	s.handle = func(msg *message.Message) ([]*message.Message, error) {
		chance := l.intN(10)
		if chance == 0 {
			return nil, errUnlucky
		}

		outputs, err := handler(msg)

		switch chance {
		case 1:
			return nil, errors.Join(err, errUnlucky)
		case 2:
			panic(errUnlucky)
		default:
			return outputs, err
		}
	}
	s.pub = flakyPublisher{s.pub, l}
}

// flakyPublisher fails before or after it has published.
type flakyPublisher struct {
	message.Publisher
	luck *luck
}

func (p flakyPublisher) Publish(topic string, messages ...*message.Message) error {
	chance := p.luck.intN(10)
	if chance == 0 {
		return errUnlucky
	}

	if err := p.Publisher.Publish(topic, messages...); err != nil || chance > 1 {
		return err
	}

	return errUnlucky
}
