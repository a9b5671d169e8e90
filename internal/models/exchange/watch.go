package exchange

import (
	"context"
	"errors"
	"io"
	"time"
)

// watchdog cancels a call that makes no progress.
type watchdog struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  error
}

// watch replaces the watched condition: unless it is called again within d, the call
// ends with cause.
func (w *watchdog) watch(d time.Duration, cause error) {
	if w.timer != nil && w.cause == cause {
		w.timer.Reset(d)
		return
	}
	w.stop()
	w.cause, w.timer = cause, time.AfterFunc(d, func() { w.cancel(cause) })
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// life watches the silence of a server, which each byte of its answer ends. Only the
// goroutine of the call uses it.
type life struct {
	w     *watchdog
	left  time.Duration // remaining time of a silence
	cause error
	waits func(until time.Time) // called with the latest time for the first piece; may be nil
	told  time.Time
}

// waitsEvery is the minimum interval between notifications of a caller.
const waitsEvery = time.Second

// sign records a sign of life of the server.
func (l *life) sign() {
	if l.left == 0 {
		return
	}
	l.w.watch(l.left, l.cause)
	if l.waits == nil {
		return
	}
	if now := time.Now(); now.Sub(l.told) >= waitsEvery {
		l.told = now
		l.waits(now.Add(l.left))
	}
}

// begun records the first piece of the answer, after which the bound of a silence
// changes.
func (l *life) begun(silence time.Duration, cause error) {
	l.left, l.cause, l.waits = silence, cause, nil
	l.sign()
}

// end records that the answer is complete: the rest of the stream has a bound of its
// own.
func (l *life) end() { l.left = 0 }

// The bounds of an answer without content, beside the bound of the content. A server
// may send noise bytes of it, such as keep-alives and events around a piece, and more
// with each second and with each byte of the answer. maxWire bounds the bytes on the
// wire as a multiple of the largest answer.
const (
	noise          = 16 << 20
	noisePerSecond = 64 << 10
	noisePerByte   = 4 << 10
	maxWire        = 32
)

var errFlood = errors.New("the server floods: nearly all of its data is empty")

// alive reads an answer. It records each sign of life, and ends an answer that floods.
type alive struct {
	io.Reader
	l     *life
	most  int // maximum size of the answer in bytes
	size  int // of the decoded part of the answer
	began time.Time
	read  int
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n == 0 {
		return n, err
	}
	a.l.sign()
	a.read += n
	if a.read > noise && (a.read > a.most || a.read-noise > noisePerByte*a.size+noisePerSecond*int(time.Since(a.began)/time.Second)) {
		return 0, errFlood
	}
	return n, err
}
