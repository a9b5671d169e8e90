package signature

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// ErrInvalid is returned for a signature that is none, or not of the statement.
var ErrInvalid = errors.New("the signature does not hold")

// maxSignature bounds an armored signature; one of an RSA key of 16384 bits has 6 KiB.
const maxSignature = 16 << 10

// By is the key that made a signature which holds. Whether it may, Trust says.
type By struct{ key ssh.PublicKey }

// Fingerprint names the key as ssh-keygen -l does.
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
	// An armor has one writing, so that no text hides in it.
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
