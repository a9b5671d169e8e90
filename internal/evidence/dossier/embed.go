package dossier

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
)

// Evidence of at most plainText bytes is embedded as plain text, so that damage is found
// at its line. Larger evidence is compressed: the heads of files in long runs are
// repetitive. Both limits are part of the layout.
const (
	plainText = 256 << 10
	// maxEvidence is the maximum size of decompressed evidence.
	maxEvidence = 512 << 20
	packedLine  = 120 // characters of a line of it
)

// packedHead is the header of compressed evidence. It must match exactly, because the
// compressed bytes are not compared with the output of this release.
var packedHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff}

// pack compresses evidence into lines of base64.
func pack(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Close()
	}
	return lines64(b.Bytes()), err
}

func lines64(data []byte) []byte {
	all := base64.StdEncoding.EncodeToString(data)
	out := make([]byte, 0, len(all)+len(all)/packedLine+1)
	for len(all) > 0 {
		n := min(packedLine, len(all))
		out = append(append(out, all[:n]...), '\n')
		all = all[n:]
	}
	return out
}

// unpack decodes the output of pack and rejects other encodings.
func unpack(packed []byte) ([]byte, error) {
	bad := func(detail string) error {
		return &Failure{Kind: Malformed, Detail: "the compressed evidence " + detail}
	}
	data, err := base64.StdEncoding.DecodeString(string(bytes.ReplaceAll(packed, []byte("\n"), nil)))
	if err != nil || !bytes.Equal(lines64(data), packed) || !bytes.HasPrefix(data, packedHead) {
		return nil, bad("is not in canonical form")
	}
	rest := bytes.NewReader(data)
	z, err := gzip.NewReader(rest)
	if err != nil {
		return nil, bad("cannot be read: " + err.Error())
	}
	z.Multistream(false)
	text, err := io.ReadAll(io.LimitReader(z, maxEvidence+1))
	switch {
	case err != nil:
		return nil, bad("is damaged: " + err.Error())
	case len(text) > maxEvidence:
		return nil, bad("is too large")
	case rest.Len() > 0:
		return nil, bad("is followed by something")
	}
	return text, nil
}
