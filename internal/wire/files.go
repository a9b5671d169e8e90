package wire

import (
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
)

// Blob is a message of a tenant's blobs, see FORMAT.md: the answer to blob, and the
// body of blob.put.
type Blob struct {
	// Data is the bytes, in JSON as base64. For a List it is the digests of the parts,
	// 32 bytes each.
	Data []byte `json:"data"`
	List bool   `json:"list,omitempty"`
}

const (
	// MaxBlobPart is the maximum size of Data in a Blob that is put, in bytes.
	MaxBlobPart = 256 << 10
	// MaxBlob is the maximum size of a blob that is put in parts. Larger files of a
	// workspace are stored as several blobs. A node reads all parts to check a list.
	MaxBlob = 256 << 20
)

// DecodeBlob reads the body of blob.put.
func DecodeBlob(data []byte) (Blob, error) {
	var b Blob
	err := strict.Decode(messages.MaxMessage, "blob", data, &b)
	return b, err
}

// Missing are the requested blobs that are not stored.
type Missing struct {
	Missing []blob.Digest `json:"missing"`
}

// MaxDigests is the maximum number of digests in a query.
const MaxDigests = 1000
