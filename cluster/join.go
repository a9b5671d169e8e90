package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrRefused reports that other nodes were reached and reject this one, because its
// key, label or protocol differs.
var ErrRefused = errors.New("refused by the other nodes")

// RejoinEvery is how often the addresses to join are resolved again and addresses that
// are not in the list are contacted.
const RejoinEvery = 30 * time.Second

const (
	// A node that sees no other tries again after firstRetry, then after twice that,
	// and so on up to lastRetry.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
	// refusals is the number of successive rejections after which a node that just
	// started gives up: a stopping node looks like a rejection.
	refusals = 3
	// startTimeout bounds how long Start waits for a rejection.
	startTimeout = 5 * time.Second
	// resolveTimeout bounds one resolution of all names.
	resolveTimeout = 5 * time.Second
	// atOnce is how many nodes are contacted at the same time.
	atOnce = 8
)

// round is the outcome of contacting the others once.
type round struct {
	refused, unreached []error
	alone              bool // every name was resolved and leads only to this node
}

// keepJoined contacts the others until ctx ends. It sends one verdict on first:
// ErrRefused, or nil when the node may start. first has room for it.
func (m *Members) keepJoined(ctx context.Context, first chan<- error) {
	tick := time.NewTicker(firstRetry)
	defer tick.Stop()
	var due time.Time
	retry, refused := firstRetry, 0
	for {
		now := time.Now()
		if !now.Before(due) {
			r := m.join(ctx)
			if ctx.Err() != nil {
				return
			}
			m.setErr(r)
			others := len(m.view.others())
			if r.alone && others == 0 {
				m.view.alone()
			}
			if refused++; len(r.refused) == 0 || others > 0 {
				refused = 0
			}
			if first != nil && (refused == 0 || refused >= refusals) {
				if refused == 0 {
					first <- nil
				} else {
					first <- m.Err()
				}
				first = nil
			}
			if others > 0 {
				retry = firstRetry
				due = now.Add(RejoinEvery)
			} else {
				due = time.Now().Add(retry)
				retry = min(2*retry, lastRetry)
			}
		} else if len(m.view.others()) == 0 && due.Sub(now) > lastRetry {
			due = now // the last other node has ended
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// join contacts every address that is not in the list.
func (m *Members) join(ctx context.Context) round {
	addrs, r := m.missing(ctx)
	for a, err := range m.meet(ctx, addrs) {
		if why, ok := refusal(err); ok {
			r.refused = append(r.refused, fmt.Errorf("cluster: join %s: %w: %s", a, ErrRefused, m.remedy(why)))
		} else {
			r.unreached = append(r.unreached, fmt.Errorf("cluster: join %s: %s", a, cause(err)))
		}
	}
	slices.SortFunc(r.refused, byText)
	slices.SortFunc(r.unreached, byText)
	return r
}

func byText(a, b error) int { return strings.Compare(a.Error(), b.Error()) }

// missing resolves the addresses to join, without this node and the nodes in the list.
func (m *Members) missing(ctx context.Context) ([]netip.AddrPort, round) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	r := round{alone: true}
	have := map[string]bool{m.addr.String(): true, m.bound.String(): true}
	for _, n := range m.view.others() {
		have[n.Addr] = true
	}
	var out []netip.AddrPort
	for _, s := range m.seeds {
		ips, err := m.lookup(ctx, s.host)
		if err != nil {
			r.alone = false
			r.unreached = append(r.unreached, fmt.Errorf("cluster: join %s: %w", s.host, err))
			continue
		}
		for _, ip := range ips {
			a := netip.AddrPortFrom(ip.Unmap(), s.port)
			if have[a.String()] {
				continue
			}
			have[a.String()] = true
			r.alone = false
			if m.addr.Addr().IsLoopback() && !ip.IsLoopback() {
				r.unreached = append(r.unreached, fmt.Errorf("cluster: join %s: this node advertises %s, which no other machine can reach: bind to 0.0.0.0 and advertise this machine's address", a, m.addr.Addr()))
				continue
			}
			out = append(out, a)
		}
	}
	return out, r
}

func (m *Members) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	return m.cfg.resolve(ctx, host)
}

// meet exchanges lists with the nodes at some addresses and returns the failures.
func (m *Members) meet(ctx context.Context, addrs []netip.AddrPort) map[netip.AddrPort]error {
	var (
		mu     sync.Mutex
		work   sync.WaitGroup
		slots  = make(chan struct{}, atOnce)
		failed = map[netip.AddrPort]error{}
	)
	for _, a := range addrs {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			if _, err := m.list.Join([]string{a.String()}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[a] = err
			}
		})
	}
	work.Wait()
	return failed
}

// refusal returns why a join failed if the other side answered and rejected it.
func refusal(err error) (string, bool) {
	text := cause(err)
	if i := strings.Index(text, protocolDiffers); i >= 0 {
		return text[i:], true
	}
	if why, ok := explain(text); ok && strings.Contains(why, keyDiffers) {
		return keyDiffers, true
	}
	for _, s := range []string{"EOF", "connection reset", "broken pipe", "closed pipe", "forcibly closed", "aborted by"} {
		if strings.Contains(text, s) {
			return labelDiffers, true
		}
	}
	return "", false
}

func (m *Members) remedy(why string) string {
	switch why {
	case keyDiffers:
		return why + ": give this node the key of the others"
	case labelDiffers:
		return fmt.Sprintf("it closed the connection: %s (this node's is %q), or what listens there is no node of Rath", why, m.cfg.Label)
	}
	return why
}

// cause removes the library's wrapping from an error of Join.
func cause(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "* "); ok {
		text = rest
	}
	if rest, ok := strings.CutPrefix(text, "failed to join "); ok {
		if _, why, ok := strings.Cut(rest, ": "); ok {
			text = why
		}
	}
	return strings.TrimSpace(text)
}
