package signature

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// The reasons why a valid signature is not accepted.
var (
	ErrUnknown = errors.New("the key is not among the signers")
	ErrRevoked = errors.New("the key is revoked")
	ErrTime    = errors.New("the key was not valid when the run ended")
)

// MaxList is the maximum size in bytes of a list of signers or of revoked keys.
const MaxList = 1 << 20

// Trust is the set of accepted signers. It is safe for concurrent use.
type Trust struct {
	signers []signer
	revoked *revoked
}

// signer is a line of a list.
type signer struct {
	names  string // patterns, separated by commas
	key    string
	scopes []string // patterns of namespaces; empty is all
	after  time.Time
	before time.Time
}

// ParseTrust reads a list of signers in the format of OpenSSH's allowed_signers, and a list
// of revoked keys, nil for none. It fails with an error that names the first invalid line.
func ParseTrust(signers, revokedKeys []byte) (*Trust, error) {
	t := &Trust{}
	for name, list := range map[string][]byte{"signers": signers, "revoked keys": revokedKeys} {
		if len(list) > MaxList {
			return nil, fmt.Errorf("signature: the list of %s has %d bytes, at most %d are read", name, len(list), MaxList)
		}
	}
	err := eachLine(signers, func(line string) error {
		s, err := parseSigner(line)
		if err == nil {
			t.signers = append(t.signers, s)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("signature: signers: %w", err)
	}
	if len(t.signers) == 0 {
		return nil, errors.New("signature: signers: the list names no key; want lines such as: NAME namespaces=\"rath\" ssh-ed25519 KEY")
	}
	t.revoked, err = parseRevoked(revokedKeys)
	return t, err
}

// Accept returns the listed name of the signer of a run that ended at a time. It fails
// with ErrUnknown, ErrRevoked or ErrTime. As in ssh-keygen, the first line that matches
// the key, the namespace and the time determines the name.
func (t *Trust) Accept(by By, ended time.Time) (name string, err error) {
	if t.revoked.has(by.key) {
		return "", fmt.Errorf("%w: %s", ErrRevoked, by.Fingerprint())
	}
	err = fmt.Errorf("%w: %s", ErrUnknown, by.Fingerprint())
	raw := string(by.key.Marshal())
	at := ended.Truncate(time.Second) // the precision of ssh-keygen -Overify-time
	for _, s := range t.signers {
		switch {
		case s.key != raw || len(s.scopes) > 0 && !matches(s.scopes, Namespace):
		case !s.after.IsZero() && at.Before(s.after):
			err = fmt.Errorf("%w: %s is valid from %s on, the run ended %s", ErrTime, by.Fingerprint(), stamp(s.after), stamp(at))
		case !s.before.IsZero() && at.After(s.before):
			err = fmt.Errorf("%w: %s was valid until %s, the run ended %s", ErrTime, by.Fingerprint(), stamp(s.before), stamp(at))
		default:
			return s.names, nil
		}
	}
	return "", err
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// matches reports whether a text matches a list of OpenSSH patterns: a match of a pattern
// after "!" denies.
func matches(patterns []string, s string) (ok bool) {
	for _, p := range patterns {
		p, not := strings.CutPrefix(p, "!")
		fits, err := path.Match(strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(p), s)
		switch {
		case err != nil || !fits:
		case not:
			return false
		default:
			ok = true
		}
	}
	return ok
}

// parseSigner reads one line: names, options, the type of the key, the key, a comment.
func parseSigner(line string) (s signer, err error) {
	names, rest, _ := strings.Cut(line, " ")
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		names, rest, _ = strings.Cut(quoted, `"`)
	}
	if !slices.ContainsFunc(strings.Split(names, ","), func(n string) bool { return n != "" && !strings.HasPrefix(n, "!") }) {
		return s, fmt.Errorf("the names %q stand for nobody: one after \"!\" only takes from those before it; want NAME [OPTIONS] TYPE KEY", names)
	}
	s.names = names
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil {
		return s, fmt.Errorf("want NAME [OPTIONS] TYPE KEY: %w", err)
	}
	s.key = string(key.Marshal())
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			s.scopes = strings.Split(value, ",")
		case "valid-after":
			s.after, err = parseTime(value)
		case "valid-before":
			s.before, err = parseTime(value)
		case "cert-authority":
			err = errors.New("cert-authority: certificates are not taken; list the keys themselves")
		default:
			err = fmt.Errorf("option %q is not known; want namespaces, valid-after, valid-before", name)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// parseTime reads a time in the format of OpenSSH: local, or UTC with a trailing Z.
func parseTime(s string) (time.Time, error) {
	digits, utc := strings.CutSuffix(s, "Z")
	zone := time.Local
	if utc {
		zone = time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.ParseInLocation(layout, digits, zone); err == nil && len(digits) == len(layout) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, of UTC with a Z at the end", s)
}

// eachLine calls fn for each line that is neither empty nor a comment.
func eachLine(data []byte, fn func(line string) error) error {
	n := 0
	for raw := range bytes.Lines(data) {
		n++
		line := strings.TrimSpace(string(raw))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := fn(strings.ReplaceAll(line, "\t", " ")); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}
