package signature

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// ErrInvalid is returned for an invalid signature, or one of another statement.
var ErrInvalid = errors.New("the signature does not hold")

// maxSignature is the maximum size of an armored signature in bytes; a signature of an RSA
// key of 16384 bits has 6 KiB.
const maxSignature = 16 << 10

// By is the key of a valid signature. Use Trust to check whether the key is accepted.
type By struct{ key ssh.PublicKey }

// Fingerprint returns the fingerprint of the key, as ssh-keygen -l prints it.
func (b By) Fingerprint() string { return ssh.FingerprintSHA256(b.key) }

// Check returns the key that signed a statement. It fails with ErrInvalid.
func Check(statement, armored string) (By, error) {
	if len(armored) > maxSignature {
		return By{}, fmt.Errorf("%w: it has %d bytes, at most %d are read", ErrInvalid, len(armored), maxSignature)
	}
	s, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return By{}, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	// An armor has one form, so that it cannot hide text.
	if again := armor(s); strings.Join(strings.Fields(again), "") != strings.Join(strings.Fields(armored), "") {
		return By{}, fmt.Errorf("%w: there is more in it than a signature", ErrInvalid)
	}
	if _, certificate := s.PublicKey.(*ssh.Certificate); certificate {
		return By{}, fmt.Errorf("%w: it is of a certificate, and only plain keys are taken", ErrInvalid)
	}
	if s.Namespace != Namespace {
		return By{}, fmt.Errorf("%w: it is of the namespace %q, not of %q", ErrInvalid, s.Namespace, Namespace)
	}
	if err := sshsig.Verify(strings.NewReader(statement), s, s.PublicKey, s.HashAlgorithm, Namespace); err != nil {
		return By{}, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	return By{s.PublicKey}, nil
}
