//go:build e2e && linux

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
)

const asPeer = "RATH_FLEET_TEST_PEER"

func TestMain(m *testing.M) {
	fleet.Child()
	if os.Getenv(asPeer) != "" {
		if err := peer(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// peer stands for a node: it answers on its health address, and on request sends a text
// once to another address.
func peer(args []string) error {
	var at string
	for i, a := range args {
		if a == "-health" {
			at = args[i+1]
		}
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	http.HandleFunc("/send", func(w http.ResponseWriter, r *http.Request) {
		c, err := net.Dial("udp", r.FormValue("to"))
		if err == nil {
			_, err = c.Write([]byte(r.FormValue("text")))
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	fmt.Println("peer is up at", at, "round", os.Getenv("ROUND"))
	return http.Serve(l, nil)
}

func start(t *testing.T, o fleet.Options, peers int) *fleet.Fleet {
	t.Helper()
	o.Dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := must.Get(fleet.Start(ctx, &o))(t)
	t.Cleanup(func() { must.Report(t, f.Close()) })
	self := must.Get(os.Executable())(t)
	must.Do(t, f.AddNodes(ctx, peers, fleet.Program{Path: self, Env: []string{asPeer + "=yes"}}))
	return f
}

// ask asks a peer; a connection of its own each time.
func ask(p *fleet.Process, path string, patience time.Duration) (string, error) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + p.IP() + ":8080" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b strings.Builder
	_, err = fmt.Fprint(&b, resp.Status)
	return b.String(), err
}

// TestCutOneWay cuts one direction: the other one still delivers.
func TestCutOneWay(t *testing.T) {
	f := start(t, fleet.Options{}, 1)
	p := f.Nodes()[0]
	l := must.Get(net.ListenPacket("udp", f.Self()+":0"))(t)
	defer l.Close()
	// send lets the peer send, asked over a connection that works.
	hear := func(text string, patience time.Duration) bool {
		t.Helper()
		must.Do(t, l.SetReadDeadline(time.Now().Add(patience)))
		buf := make([]byte, 100)
		for {
			n, _, err := l.ReadFrom(buf)
			if err != nil {
				return false
			}
			if string(buf[:n]) == text {
				return true
			}
		}
	}
	send := func(text string) {
		t.Helper()
		_, err := ask(p, "/send?to="+l.LocalAddr().String()+"&text="+text, 500*time.Millisecond)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
			t.Fatal(err)
		}
	}
	// delivers sends until it is heard: it may take the network a moment.
	delivers := func(text string) bool {
		for range 20 {
			if send(text); hear(text, 500*time.Millisecond) {
				return true
			}
		}
		return false
	}
	if !delivers("before") {
		t.Fatal("nothing is heard over the whole network")
	}
	// Messages from the peer are lost. Messages to it still arrive, though its TCP answers do
	// not.
	must.Do(t, f.Cut(p, nil))
	if send("cut"); hear("cut", 300*time.Millisecond) {
		t.Error("the cut direction delivers")
	}
	must.Do(t, f.Heal(p, nil))
	if !delivers("healed") {
		t.Error("the healed direction does not deliver")
	}
	// The other direction: the peer cannot be asked.
	must.Do(t, f.Cut(nil, p))
	if _, err := ask(p, "/", 300*time.Millisecond); err == nil {
		t.Error("the cut direction delivers")
	}
	must.Do(t, f.HealAll())
	if _, err := ask(p, "/", 20*time.Second); err != nil {
		t.Errorf("after healing all: %v", err)
	}
}

// TestLose counts the echoes of a host that loses a quarter of its incoming packets.
func TestLose(t *testing.T) {
	f := start(t, fleet.Options{}, 1)
	p := f.Nodes()[0]
	echoes := func() int {
		t.Helper()
		l := must.Get(net.ListenPacket("ip4:icmp", f.Self()))(t)
		defer l.Close()
		keepAll(t, l.(*net.IPConn))
		const sent = 200
		for i := range sent {
			// An echo request of RFC 792 with i as its number: the last two
			// fields of the header and the checksum over all of it.
			m := []byte{8, 0, 0, 0, 0, 0, byte(i >> 8), byte(i)}
			sum := ^(uint16(8)<<8 + uint16(i))
			m[2], m[3] = byte(sum>>8), byte(sum)
			must.Get(l.WriteTo(m, &net.IPAddr{IP: net.ParseIP(p.IP())}))(t)
		}
		n := 0
		for buf := make([]byte, 100); n < sent; {
			// All of them are on their way. This process may get its turn late.
			must.Do(t, l.SetReadDeadline(time.Now().Add(2*time.Second)))
			size, from, err := l.ReadFrom(buf)
			if err != nil {
				break
			}
			if size == 8 && buf[0] == 0 && from.String() == p.IP() {
				n++
			}
		}
		return n
	}
	if n := echoes(); n != 200 {
		t.Fatalf("%d of 200 echoes over the whole network", n)
	}
	must.Do(t, f.Lose(p, 0.25))
	if n := echoes(); n < 110 || n > 185 {
		t.Errorf("%d of 200 echoes from who loses a quarter", n)
	}
	must.Do(t, f.Lose(p, 0))
	if n := echoes(); n != 200 {
		t.Errorf("%d of 200 echoes after the loss", n)
	}
	must.Do(t, errors.Join(f.Lose(p, 1), f.HealAll()))
	if n := echoes(); n != 200 {
		t.Errorf("%d of 200 echoes after healing all", n)
	}
}

// keepAll enlarges a socket's buffer for all packets that arrive while this process does
// not read: beyond the limit of unprivileged programs.
func keepAll(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	must.Do(t, err)
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 4<<20)
	})
	must.Do(t, errors.Join(err, set))
}

// TestProcess kills, freezes, drains and starts one again.
func TestProcess(t *testing.T) {
	f := start(t, fleet.Options{}, 1)
	p := f.Nodes()[0]
	must.Do(t, p.Freeze())
	if _, err := ask(p, "/", 300*time.Millisecond); err == nil || !p.Frozen() {
		t.Errorf("a frozen process answers (%v)", err)
	}
	must.Do(t, p.Thaw())
	if _, err := ask(p, "/", 20*time.Second); err != nil || p.Frozen() {
		t.Errorf("after the thaw: %v", err)
	}
	must.Do(t, p.Kill())
	if p.Running() || !errors.Is(p.Kill(), fleet.ErrNotRunning) {
		t.Error("it runs after kill -9")
	}
	p.Set("ROUND", "two")
	must.Do(t, p.Start())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Do(t, p.Up(ctx))
	log, err := os.ReadFile(p.Log)
	if err != nil || !strings.Contains(string(log), "round two") || p.Starts() != 2 {
		t.Errorf("%d starts, log %s, %v", p.Starts(), log, err)
	}
	if err := p.Drain(ctx); err == nil { // the peer does not handle SIGTERM
		t.Error("it ended cleanly by a signal")
	}
}

// TestFullDisk: a server with a full disk of its own does not take messages,
// and does with space again. No process outside of the fleet sees the disk.
func TestFullDisk(t *testing.T) {
	f := start(t, fleet.Options{Disks: []fleet.Disk{{Size: 64 << 20}}}, 0)
	p := f.Servers()[0]
	must.Do(t, f.Fill(p))
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.Log), "store", "full")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the disk is seen outside: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must.Do(t, p.Kill())
	must.Do(t, p.Start())
	if err := p.Up(ctx); !errors.Is(err, fleet.ErrNotRunning) || !strings.Contains(err.Error(), "full") {
		t.Errorf("it started on a full disk: %v", err)
	}
	must.Do(t, f.Free(p))
	must.Do(t, p.Start())
	must.Report(t, f.ServersUp(ctx))
}

// TestNothingStays: a fleet removes everything that it created on this machine.
func TestNothingStays(t *testing.T) {
	f := start(t, fleet.Options{}, 2)
	pid := f.Nodes()[1].PID()
	device := deviceOf(t, f.Self())
	if device == "" {
		t.Fatalf("no device has the address %s", f.Self())
	}
	must.Do(t, f.Close())
	if left := deviceOf(t, f.Self()); left == device {
		t.Errorf("the device %s is still there", left)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// deviceOf returns the name of the network device with an address, "" if there
// is none.
func deviceOf(t *testing.T, ip string) string {
	t.Helper()
	all := must.Get(net.Interfaces())(t)
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it is just going away
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == ip {
				return fmt.Sprint(i.Index, " ", i.Name) // another fleet may have reused the name
			}
		}
	}
	return ""
}
