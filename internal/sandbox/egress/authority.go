package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math"
	"math/big"
	"sync"
	"time"
)

// authority is a certificate authority that only the programs of one sandbox trust.
type authority struct {
	cert tls.Certificate
	pem  []byte

	mu    sync.Mutex
	known map[string]*tls.Certificate // by host
}

// lifetime is far longer than a sandbox lives; clocks may differ by a day.
const lifetime = 30 * 24 * time.Hour

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Rath sandbox " + rand.Text()[:8]},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), known: map[string]*tls.Certificate{},
	}, nil
}

// of returns the certificate of a host of the list. It creates each once.
func (a *authority) of(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.known[host]; c != nil {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Rath sandbox"}}, DNSNames: []string{host},
		NotBefore: a.cert.Leaf.NotBefore, NotAfter: a.cert.Leaf.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert.Leaf, key.Public(), a.cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der, a.cert.Certificate[0]}, PrivateKey: key}
	if len(a.known) < maxKnown {
		a.known[host] = c
	}
	return c, nil
}

// maxKnown bounds the cached certificates: a pattern matches any number of hosts.
const maxKnown = 1024
