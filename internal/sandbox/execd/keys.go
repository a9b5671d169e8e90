package execd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"time"
)

// Port is the port on which the daemon of a pod listens.
const Port = 7391

// KeysVariable is the variable with a pod's daemon's end of the keys.
const KeysVariable = "RATH_SANDBOX_KEYS"

// handshakePatience bounds the time that a peer takes to authenticate itself.
const handshakePatience = 10 * time.Second

// Keys are the keys of one daemon and its holder. Each end has a key and the other end's
// certificate and accepts no other. There is no certificate authority and no expiry, which
// would require the clocks of two machines to agree.
type Keys struct {
	holder *tls.Config
	// Daemon is the daemon's end, for KeysVariable.
	Daemon []byte
}

// NewKeys creates the keys of one daemon.
func NewKeys() (*Keys, error) {
	holder, _, err := newCertificate("holder")
	if err != nil {
		return nil, err
	}
	daemon, private, err := newCertificate("daemon")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, b := range []pem.Block{
		{Type: "CERTIFICATE", Bytes: daemon.Certificate[0]}, {Type: "PRIVATE KEY", Bytes: private}, {Type: "CERTIFICATE", Bytes: holder.Certificate[0]},
	} {
		if err := pem.Encode(&text, &b); err != nil {
			return nil, err
		}
	}
	return &Keys{holder: end(holder, daemon.Certificate[0]), Daemon: text.Bytes()}, nil
}

func newCertificate(name string) (c tls.Certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, nil, err
	}
	if private, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return c, nil, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	template.Subject.CommonName = "rath sandbox " + name
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, private, err
}

// end returns the TLS configuration of either end: it presents its own certificate, and its
// peer must have the key of the other one.
func end(own tls.Certificate, other []byte) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		// Compare the certificate itself instead of verifying a chain to an authority.
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !bytes.Equal(s.PeerCertificates[0].Raw, other) {
				return errors.New("the peer has another certificate")
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}
}

// daemonEnd parses the daemon's end of the keys.
func daemonEnd(text []byte) (*tls.Config, error) {
	var blocks []*pem.Block
	for {
		b, rest := pem.Decode(text)
		if b == nil {
			break
		}
		blocks, text = append(blocks, b), rest
	}
	if len(blocks) != 3 {
		return nil, fmt.Errorf("the keys have %d parts, want 3", len(blocks))
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[1].Bytes)
	if err != nil {
		return nil, fmt.Errorf("the keys: %w", err)
	}
	return end(tls.Certificate{Certificate: [][]byte{blocks[0].Bytes}, PrivateKey: key}, blocks[2].Bytes), nil
}

// ListenPod listens on the address that the holder of a pod's daemon dials, with the
// daemon's end of the keys.
func ListenPod(ip string, keys []byte) (net.Listener, error) {
	config, err := daemonEnd(keys)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(Port)))
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, config), nil
}
