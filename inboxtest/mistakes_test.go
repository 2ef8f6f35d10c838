package inboxtest_test

import (
	"database/sql"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

// The handlers of this file each make one mistake.

func writesThroughPool(env *inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := env.DB.ExecContext(msg.Context(), insertCharge, string(msg.Payload))

		return nil, err
	}
}

func ignoresPool(env *inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, _ = env.DB.ExecContext(msg.Context(), insertCharge, string(msg.Payload))

		return nil, nil
	}
}

func remembers(*inboxtest.Env) message.HandlerFunc {
	var done sync.Map

	return func(msg *message.Message) ([]*message.Message, error) {
		if _, known := done.LoadOrStore(msg.UUID, true); known {
			return nil, nil
		}

		return nil, charge(msg)
	}
}

func failsOnMemory(*inboxtest.Env) message.HandlerFunc {
	var done sync.Map

	return func(msg *message.Message) ([]*message.Message, error) {
		if _, known := done.LoadOrStore(msg.UUID, true); known {
			return nil, errors.New("charged already")
		}

		return nil, charge(msg)
	}
}

func addsUp(*inboxtest.Env) message.HandlerFunc {
	var pending int

	return func(msg *message.Message) ([]*message.Message, error) {
		pending++

		for range pending {
			if err := charge(msg); err != nil {
				return nil, err
			}
		}

		return nil, nil
	}
}

func swallows(*inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_ = charge(msg)

		return nil, nil
	}
}

func endsWith(end func(*sql.Tx) error) func(*inboxtest.Env) message.HandlerFunc {
	return func(*inboxtest.Env) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())

			return nil, errors.Join(charge(msg), end(tx))
		}
	}
}

func always(do func() error) func(*inboxtest.Env) message.HandlerFunc {
	return func(*inboxtest.Env) message.HandlerFunc {
		return func(*message.Message) ([]*message.Message, error) { return nil, do() }
	}
}

func returns(uuids ...string) func(*inboxtest.Env) message.HandlerFunc {
	return func(*inboxtest.Env) message.HandlerFunc {
		return func(msg *message.Message) (outputs []*message.Message, err error) {
			for _, uuid := range uuids {
				outputs = append(outputs, message.NewMessage(uuid, nil))
			}

			return outputs, charge(msg)
		}
	}
}

func copiesID(*inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs := []*message.Message{order("receipt"), order("parcel")}
		for _, output := range outputs {
			output.Metadata.Set("event_id", msg.Metadata.Get("event_id"))
		}

		return outputs, charge(msg)
	}
}

func returnsNil(*inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{nil}, charge(msg)
	}
}

func twice(*inboxtest.Env) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		return nil, errors.Join(charge(msg), charge(msg))
	}
}
