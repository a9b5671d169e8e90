package conn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// certificate returns a certificate for 127.0.0.1 that is its own authority, and the PEM
// file of that authority.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	it := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rath test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, it, it, key.Public(), key))(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// TestRootCAs holds that a connection trusts the authorities that it is given,
// and no unknown one.
func TestRootCAs(t *testing.T) {
	cert, ca := certificate(t)
	_, other := certificate(t)
	s := must.Get(server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, TLS: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}))(t)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	address := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	c := must.Get(Connect(t.Context(), &Options{URL: address, RootCAs: ca}))(t)
	t.Cleanup(func() { _ = c.Close() })
	if !c.Connected() {
		t.Error("not connected")
	}
	for name, roots := range map[string]string{"the usual authorities": "", "another authority": other} {
		c, err := Connect(t.Context(), &Options{URL: address, RootCAs: roots})
		if err == nil {
			t.Errorf("%s: connected", name)
			err = c.Close()
		}
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "x509") || !strings.Contains(err.Error(), "NATS_CA") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An unreadable file is not an absent server: waiting brings no file.
	for _, o := range []*Options{{RootCAs: "/none/ca.pem"}, {RootCAs: ca, CredsFile: "/none/nats.creds"}} {
		o.URL = address
		if c, err := Connect(t.Context(), o); err == nil {
			t.Error("connected", c.Close())
		} else if errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "/none/") {
			t.Errorf("a file that is not there: %v", err)
		}
	}
}
