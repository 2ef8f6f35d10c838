package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// keyHeader is the one of https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/.
const keyHeader = "Idempotency-Key"

// mailAPI is the service that sends mails: slow, sometimes broken, and outside of every transaction.
type mailAPI struct {
	config
	url     string
	server  *http.Server
	due     chan struct{} // closed when the worker is to be killed
	again   chan struct{} // closed when it is called for a mail that it has accepted
	noticed sync.Once

	mu                                sync.Mutex
	random                            *rand.Rand
	answers                           map[string]string // by idempotency key
	sent                              map[string]int    // mails, by order
	accepted                          int
	calls, failed, repeated, withheld int
}

// startAPI serves until it is closed.
func startAPI(cfg config) (*mailAPI, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	a := &mailAPI{
		config: cfg, url: "http://" + listener.Addr().String(), due: make(chan struct{}), again: make(chan struct{}),
		random: rand.New(rand.NewPCG(cfg.seed, 0)), answers: make(map[string]string), sent: make(map[string]int),
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}

	go func() {
		if err := a.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()

	return a, nil
}

func (a *mailAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &o) != nil {
		http.Error(w, "not an order", http.StatusBadRequest)

		return
	}

	delay, fails := a.begin(o.ID)
	time.Sleep(delay)

	if fails {
		http.Error(w, "try again later", http.StatusInternalServerError)

		return
	}

	mailID, withhold := a.accept(r.Header.Get(keyHeader), o.ID)
	if withhold {
		<-r.Context().Done() // when the worker is dead

		return
	}

	fmt.Fprint(w, mailID)
}

// begin decides how long a call takes and whether it fails, as every fourth does.
func (a *mailAPI) begin(orderID string) (delay time.Duration, fails bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.sent[orderID] > 0 {
		a.noticed.Do(func() { close(a.again) })
	}

	a.calls++
	shortest := a.delay / 6
	delay, fails = shortest+time.Duration(a.random.Int64N(int64(a.delay-shortest)+1)), a.random.IntN(4) == 0

	if fails {
		a.failed++
	}

	return delay, fails
}

// accept sends a mail, unless it knows the key: then it has, and gives the same answer again. From the mail with the number
// -kill on answers are withheld, until every call of the worker's waits for one.
func (a *mailAPI) accept(key, orderID string) (mailID string, withhold bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if mailID, known := a.answers[key]; known {
		a.repeated++

		return mailID, false
	}

	a.accepted++
	a.sent[orderID]++
	mailID = fmt.Sprintf("mail-%d", a.accepted)

	if key != "" {
		a.answers[key] = mailID
	}

	most := min(concurrency, a.mails-a.kill+1)
	if a.kill == 0 || a.accepted < a.kill || a.withheld == most {
		return mailID, false
	}

	if a.withheld++; a.withheld == most {
		close(a.due)
	}

	return mailID, true
}

func (a *mailAPI) progress() (accepted, withheld int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.accepted, a.withheld
}
