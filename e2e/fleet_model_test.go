//go:build e2e && linux

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/llm/scripted"
)

// modelHost is the model server of a fleet, whose health can be changed while
// it works.
type modelHost struct {
	url    string
	key    string // that a request has to bring
	log    *os.File
	server *http.Server
	listen net.Listener
	sick   atomic.Pointer[sickness]
	served atomic.Int64
	keyed  atomic.Int64 // requests that brought the key
	echoed atomic.Int64 // answers that said it
	ill    atomic.Bool  // it was sick at some time
}

// sickness is a fault of a model server.
type sickness struct {
	name  string
	delay time.Duration
	// one of so many requests is not answered properly; 0 is none
	oneOf int64
	bad   func(m *modelHost, w http.ResponseWriter, r *http.Request)
}

// newModelHost serves a script at an address of the fleet's network, for
// requests with the key.
func newModelHost(ip, key, script, witness string, delay time.Duration) (*modelHost, error) {
	data, err := os.ReadFile(script)
	if err != nil {
		return nil, err
	}
	s, err := scripted.Parse(script, data)
	if err != nil {
		return nil, err
	}
	m := &modelHost{key: key}
	if m.log, err = os.Create(witness); err != nil {
		return nil, err
	}
	model, err := scripted.New(s, &scripted.Options{Log: m.log, Delay: delay})
	if err != nil {
		return nil, errors.Join(err, m.log.Close())
	}
	if m.listen, err = net.Listen("tcp", net.JoinHostPort(ip, "0")); err != nil {
		return nil, errors.Join(err, m.log.Close())
	}
	m.url = fmt.Sprintf("http://%s/v1", m.listen.Addr())
	m.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := m.served.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+m.key {
			http.Error(w, `{"error":{"message":"no key, or another one"}}`, http.StatusUnauthorized)
			return
		}
		m.keyed.Add(1)
		if s := m.sick.Load(); s != nil {
			select {
			case <-time.After(s.delay):
			case <-r.Context().Done():
				return
			}
			if s.oneOf > 0 && n%s.oneOf == 0 {
				m.ill.Store(true)
				s.bad(m, w, r)
				return
			}
		}
		model.ServeHTTP(w, r)
	})}
	go func() { _ = m.server.Serve(m.listen) }()
	return m, nil
}

func (m *modelHost) close() error {
	return errors.Join(m.server.Close(), m.log.Close())
}

// The faults of model servers.
var sicknesses = []sickness{
	{name: "slow", delay: 700 * time.Millisecond},
	{name: "errors", oneOf: 3, bad: func(m *modelHost, w http.ResponseWriter, _ *http.Request) {
		// Servers return the key in an error. It must not be stored anywhere.
		m.echoed.Add(1)
		http.Error(w, `{"error":{"message":"broken for `+m.key+` today"}}`, http.StatusInternalServerError)
	}},
	{name: "overloaded", oneOf: 2, bad: func(m *modelHost, w http.ResponseWriter, _ *http.Request) {
		m.echoed.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"slow down, `+m.key+`"}}`, http.StatusTooManyRequests)
	}},
	{name: "hanging", oneOf: 4, bad: func(_ *modelHost, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
		panic(http.ErrAbortHandler)
	}},
	{name: "truncating", oneOf: 4, bad: func(_ *modelHost, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"half an ans\"}}]}\n\n")
	}},
	{name: "aborting", oneOf: 4, bad: func(*modelHost, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
}
