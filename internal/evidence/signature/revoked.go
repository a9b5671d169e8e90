package signature

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the lists of ssh-keygen name keys by it
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// revoked is the set of revoked keys of a list: their bytes, or digests of them.
type revoked struct {
	keys, sha1s, sha256s map[string]bool
}

func (r *revoked) has(key ssh.PublicKey) bool {
	raw := key.Marshal()
	one, two := sha1.Sum(raw), sha256.Sum256(raw) //nolint:gosec // see above
	return r.keys[string(raw)] || r.sha1s[string(one[:])] || r.sha256s[string(two[:])]
}

// krlMagic is the prefix of a key revocation list of ssh-keygen -k.
const krlMagic = "SSHKRL\n\x00"

// parseRevoked reads the input of ssh-keygen -Y verify -r: a list of public keys, one per
// line, or a key revocation list.
func parseRevoked(data []byte) (*revoked, error) {
	r := &revoked{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	if bytes.HasPrefix(data, []byte(krlMagic)) {
		if err := r.krl(data[len(krlMagic):]); err != nil {
			return nil, fmt.Errorf("signature: key revocation list: %w", err)
		}
		return r, nil
	}
	err := eachLine(data, func(line string) error {
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err == nil && len(options) > 0 {
			err = errors.New("a revoked key has no options")
		}
		if err != nil {
			return err
		}
		r.keys[string(key.Marshal())] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("signature: revoked keys: %w", err)
	}
	return r, nil
}

var errKRL = errors.New("it is cut off or damaged")

// krl reads a list in the format of OpenSSH's PROTOCOL.krl, after its magic. It rejects
// unknown sections, because they could revoke the key in question.
func (r *revoked) krl(rest []byte) error {
	number := func(n int) (v uint64) {
		if len(rest) < n {
			rest = nil
			return 0
		}
		for _, b := range rest[:n] {
			v = v<<8 | uint64(b)
		}
		rest = rest[n:]
		return v
	}
	if version := number(4); version != 1 {
		return fmt.Errorf("it has version %d, and 1 is read", version)
	}
	const fixed = 8 + 8 + 8 // the list's number, its time, its flags
	if len(rest) < fixed {
		return errKRL
	}
	rest = rest[fixed:]
	for range 2 { // reserved, comment
		var ok bool
		if _, rest, ok = text(rest); !ok {
			return errKRL
		}
	}
	for len(rest) > 0 {
		kind := number(1)
		section, after, ok := text(rest)
		if !ok {
			return errKRL
		}
		rest = after
		var into map[string]bool
		switch kind {
		case 1: // certificates, which are never accepted
			continue
		case 2:
			into = r.keys
		case 3:
			into = r.sha1s
		case 5:
			into = r.sha256s
		default:
			return fmt.Errorf("it has a part of kind %d, which is not known here; write it again with ssh-keygen -k", kind)
		}
		for len(section) > 0 {
			var key []byte
			if key, section, ok = text(section); !ok {
				return errKRL
			}
			into[string(key)] = true
		}
	}
	return nil
}

// text reads a string in SSH's wire format.
func text(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
