package signature

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Namespace separates signatures of this program from signatures of the same key for
// others.
const Namespace = "rath"

// StoreFile is the name of the key in the store of a node with a server of its own.
const StoreFile = "signing_key"

// ErrPassphrase is returned for a private key that is encrypted.
var ErrPassphrase = errors.New("signature: the key has a passphrase, which nothing here can ask for")

// maxKey is the maximum size of the file of a private key in bytes.
const maxKey = 64 << 10

// Key is a private key. It is safe for concurrent use.
type Key struct{ signer ssh.Signer }

// Load reads a private key in a format of ssh-keygen.
func Load(file string) (*Key, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("signature: private key: %w", err)
	}
	if fi.Size() > maxKey {
		return nil, fmt.Errorf("signature: private key %s: %d bytes are more than the %d of any key", file, fi.Size(), maxKey)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("signature: private key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		return nil, fmt.Errorf("%w: %s; make one for signing with: ssh-keygen -t ed25519 -N '' -f FILE", ErrPassphrase, file)
	}
	if err != nil {
		return nil, fmt.Errorf("signature: private key %s: %w; make one with: ssh-keygen -t ed25519 -N '' -f FILE", file, err)
	}
	return &Key{signer}, nil
}

// Open is Load, except that it creates a missing key: an ed25519 key that only its owner
// may read. The caller must have exclusive use of the directory.
func Open(file string) (*Key, error) {
	k, err := Load(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("signature: make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "rath")
	if err != nil {
		return nil, fmt.Errorf("signature: make a key: %w", err)
	}
	// A crash leaves no partial key under the name.
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("signature: write a key: %w", err)
	}
	_, err = f.Write(pem.EncodeToMemory(block))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("signature: write a key: %w", err), os.Remove(f.Name()))
	}
	return Load(file)
}

// Sign signs a statement and returns the signature in the format of ssh-keygen.
func (k *Key) Sign(statement string) (string, error) {
	s, err := sshsig.Sign(strings.NewReader(statement), k.signer, sshsig.HashSHA512, Namespace)
	if err != nil {
		return "", fmt.Errorf("signature: sign: %w", err)
	}
	return armor(s), nil
}

// armor is sshsig.Armor, in a tenth of the memory.
func armor(s *sshsig.Signature) string {
	const width = 64
	text := base64.StdEncoding.EncodeToString(s.Marshal())
	var b strings.Builder
	b.Grow(len(text) + len(text)/width + 80)
	b.WriteString("-----BEGIN " + sshsig.PEMType + "-----\n")
	for len(text) > 0 {
		n := min(len(text), width)
		b.WriteString(text[:n])
		b.WriteByte('\n')
		text = text[n:]
	}
	b.WriteString("-----END " + sshsig.PEMType + "-----\n")
	return b.String()
}

// Fingerprint returns the fingerprint of the key, as ssh-keygen -l prints it.
func (k *Key) Fingerprint() string { return ssh.FingerprintSHA256(k.signer.PublicKey()) }

// Signer returns the key's line in a list of allowed signers, under a name.
func (k *Key) Signer(name string) string {
	return fmt.Sprintf("%s namespaces=%q %s", name, Namespace, ssh.MarshalAuthorizedKey(k.signer.PublicKey()))
}
