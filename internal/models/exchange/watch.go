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

// watch replaces what was watched for: if it is not called again within d,
// the call ends with cause.
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

// life watches over the silence of a server: each byte of its answer ends one. It is used
// by the goroutine of the call alone.
type life struct {
	w     *watchdog
	left  time.Duration // that a silence may last
	cause error
	waits func(until time.Time) // gets until when the first piece is waited for; nil without
	told  time.Time
}

// waitsEvery is how often a caller is notified at the most.
const waitsEvery = time.Second

// sign notes that the server is alive.
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

// begun notes that a piece of the answer came, after which a silence has another bound.
func (l *life) begun(silence time.Duration, cause error) {
	l.left, l.cause, l.waits = silence, cause, nil
	l.sign()
}

// end notes that the answer is whole: the rest of the stream has a bound of its own.
func (l *life) end() { l.left = 0 }

// The bounds of an answer without content, beside the bound of the content: a server
// may send noise bytes of it, such as keep-alives and events around a piece, and more with
// each second and with each byte of the answer. The whole may be so many times as large as
// an answer.
const (
	noise          = 16 << 20
	noisePerSecond = 64 << 10
	noisePerByte   = 4 << 10
	maxWire        = 32
)

var errFlood = errors.New("the server floods: nearly all that it sends says nothing")

// alive reads an answer. It notes each sign of life, and ends an answer that floods.
type alive struct {
	io.Reader
	l     *life
	most  int // bytes of it
	size  int // of the answer, as far as it was understood
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
