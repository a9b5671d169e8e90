package wire

import (
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
)

// Blob is a message of a tenant's blobs, see FORMAT.md: the answer of blob, and the body
// of blob.put.
type Blob struct {
	// Data is the bytes, in JSON as base64. Of a List it is the digests of the parts, 32
	// bytes each.
	Data []byte `json:"data"`
	List bool   `json:"list,omitempty"`
}

const (
	// MaxBlobPart is the most bytes of Data in a Blob that is put.
	MaxBlobPart = 256 << 10
	// MaxBlob is the most bytes of a blob that is put in parts. Files of a workspace that
	// are larger go as several. A node reads all of them to check a list.
	MaxBlob = 256 << 20
)

// DecodeBlob reads the body of blob.put.
func DecodeBlob(data []byte) (Blob, error) {
	var b Blob
	err := strict.Decode(messages.MaxMessage, "blob", data, &b)
	return b, err
}

// Missing are those of the blobs that were asked for that are not stored.
type Missing struct {
	Missing []blob.Digest `json:"missing"`
}

// MaxDigests is how many digests a query takes.
const MaxDigests = 1000
