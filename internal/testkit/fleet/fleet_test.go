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

// peer stands for a node: it answers on its health address, and sends what it
// is asked to, once, to another address.
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
	f, err := fleet.Start(ctx, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AddNodes(ctx, peers, fleet.Program{Path: self, Env: []string{asPeer + "=yes"}}); err != nil {
		t.Fatal(err)
	}
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
	l, err := net.ListenPacket("udp", f.Self()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// send lets the peer send, asked over a connection that works.
	hear := func(text string, patience time.Duration) bool {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
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
	// What the peer sends is lost; what it is sent still arrives, though its
	// TCP answers do not.
	if err := f.Cut(p, nil); err != nil {
		t.Fatal(err)
	}
	if send("cut"); hear("cut", 300*time.Millisecond) {
		t.Error("the cut direction delivers")
	}
	if err := f.Heal(p, nil); err != nil {
		t.Fatal(err)
	}
	if !delivers("healed") {
		t.Error("the healed direction does not deliver")
	}
	// The other direction: the peer cannot be asked.
	if err := f.Cut(nil, p); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(p, "/", 300*time.Millisecond); err == nil {
		t.Error("the cut direction delivers")
	}
	if err := f.HealAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(p, "/", 20*time.Second); err != nil {
		t.Errorf("after healing all: %v", err)
	}
}

// TestLose counts the echoes of a host that loses a quarter of what reaches it.
func TestLose(t *testing.T) {
	f := start(t, fleet.Options{}, 1)
	p := f.Nodes()[0]
	echoes := func() int {
		t.Helper()
		l, err := net.ListenPacket("ip4:icmp", f.Self())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		keepAll(t, l.(*net.IPConn))
		const sent = 200
		for i := range sent {
			// An echo request of RFC 792 with i as its number: the last two
			// fields of the header and the checksum over all of it.
			m := []byte{8, 0, 0, 0, 0, 0, byte(i >> 8), byte(i)}
			sum := ^(uint16(8)<<8 + uint16(i))
			m[2], m[3] = byte(sum>>8), byte(sum)
			if _, err := l.WriteTo(m, &net.IPAddr{IP: net.ParseIP(p.IP())}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for buf := make([]byte, 100); n < sent; {
			// All of them are on their way. This process may get its turn late.
			if err := l.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
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
	if err := f.Lose(p, 0.25); err != nil {
		t.Fatal(err)
	}
	if n := echoes(); n < 110 || n > 185 {
		t.Errorf("%d of 200 echoes from who loses a quarter", n)
	}
	if err := f.Lose(p, 0); err != nil {
		t.Fatal(err)
	}
	if n := echoes(); n != 200 {
		t.Errorf("%d of 200 echoes after the loss", n)
	}
	if err := errors.Join(f.Lose(p, 1), f.HealAll()); err != nil {
		t.Fatal(err)
	}
	if n := echoes(); n != 200 {
		t.Errorf("%d of 200 echoes after healing all", n)
	}
}

// keepAll gives a socket room for all that comes while this process does not read:
// more than programs without rights may ask for.
func keepAll(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 4<<20)
	})
	if err := errors.Join(err, set); err != nil {
		t.Fatal(err)
	}
}

// TestProcess kills, freezes, drains and starts one again.
func TestProcess(t *testing.T) {
	f := start(t, fleet.Options{}, 1)
	p := f.Nodes()[0]
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(p, "/", 300*time.Millisecond); err == nil || !p.Frozen() {
		t.Errorf("a frozen process answers (%v)", err)
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(p, "/", 20*time.Second); err != nil || p.Frozen() {
		t.Errorf("after the thaw: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Running() || !errors.Is(p.Kill(), fleet.ErrNotRunning) {
		t.Error("it runs after kill -9")
	}
	p.Set("ROUND", "two")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(p.Log)
	if err != nil || !strings.Contains(string(log), "round two") || p.Starts() != 2 {
		t.Errorf("%d starts, log %s, %v", p.Starts(), log, err)
	}
	if err := p.Drain(ctx); err == nil { // the peer does not know SIGTERM
		t.Error("it ended cleanly by a signal")
	}
}

// TestFullDisk: a server with a full disk of its own does not take messages,
// and does with space again. No process outside of the fleet sees the disk.
func TestFullDisk(t *testing.T) {
	f := start(t, fleet.Options{Disks: []fleet.Disk{{Size: 64 << 20}}}, 0)
	p := f.Servers()[0]
	if err := f.Fill(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(p.Log), "store", "full")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the disk is seen outside: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Up(ctx); !errors.Is(err, fleet.ErrNotRunning) || !strings.Contains(err.Error(), "full") {
		t.Errorf("it started on a full disk: %v", err)
	}
	if err := f.Free(p); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := f.ServersUp(ctx); err != nil {
		t.Error(err)
	}
}

// TestNothingStays: what a fleet made on this machine ends with it.
func TestNothingStays(t *testing.T) {
	f := start(t, fleet.Options{}, 2)
	pid := f.Nodes()[1].PID()
	device := deviceOf(t, f.Self())
	if device == "" {
		t.Fatalf("no device has the address %s", f.Self())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
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
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it is just going away
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == ip {
				return fmt.Sprint(i.Index, " ", i.Name) // the name alone may be another fleet's by now
			}
		}
	}
	return ""
}
