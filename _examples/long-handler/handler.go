package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// mailer is the handler and what it needs.
type mailer struct {
	api    string
	client *http.Client
	keys   bool
}

// callTimeout bounds one call. It may be much longer than the lease, which is renewed meanwhile.
const callTimeout = time.Minute

// confirmOrder handles an order: it sends a mail and writes down which.
//
// The call comes first, with no transaction open. If the process dies after it, or the transaction fails, the message comes
// again and the call is repeated, with the same key.
func (m *mailer) confirmOrder(msg *message.Message) error {
	ctx := msg.Context() // ends when the lease is lost: somebody else has the message then

	event, ok := inbox.EventFromContext(ctx)
	if !ok {
		return errors.New("no inbox in front of this handler")
	}

	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return fmt.Errorf("decoding an order: %w", err)
	}

	mailID, err := m.send(ctx, event.ID, msg.Payload)
	if err != nil {
		return fmt.Errorf("sending a mail for order %s: %w", o.ID, err)
	}

	return inbox.InTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO sent (order_id, mail_id) VALUES (?, ?)`, o.ID, mailID)

		return err
	})
}

// send makes a call of the mail API and returns the id that it gave to the mail.
func (m *mailer) send(ctx context.Context, key string, body []byte) (mailID string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.api, bytes.NewReader(body))
	if err != nil {
		return "", err
	}

	if m.keys {
		request.Header.Set(keyHeader, key)
	}

	response, err := m.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}

	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the mail API answered %s", response.Status)
	}

	return string(answer), nil
}
