package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	_ "image/gif" // the three are known to image.DecodeConfig
	_ "image/jpeg"
	_ "image/png"

	"github.com/rathcluster/rath/blob"
)

// Limits of images.
const (
	MaxImage     = 5 << 20 / 4 * 3 // bytes of one: 5 MiB in base64, as the strictest server counts
	MaxImages    = 16              // of a chunk
	MaxImageSide = 8000            // pixels, in width and in height
)

// ErrImage is wrapped by NewImage for bytes that are no supported image.
var ErrImage = errors.New("session: no image that models see")

// Image is a picture that belongs to a chunk. Its bytes are a blob of the tenant.
type Image struct {
	Digest blob.Digest `json:"digest"`
	Size   int64       `json:"size"` // bytes
	Type   string      `json:"type"` // its media type, such as "image/png"
}

// String describes the image for users and for models that do not see it.
func (i Image) String() string {
	return fmt.Sprintf("%s, %d bytes, sha256 %s", i.Type, i.Size, i.Digest)
}

// NewImage returns the image of data: a PNG, JPEG, GIF or WebP, by its contents and not
// by its name. The error wraps ErrImage. The caller stores the bytes.
func NewImage(data []byte) (Image, error) {
	if len(data) > MaxImage {
		return Image{}, fmt.Errorf("%w: it has %d bytes, at most %d are taken: make it smaller", ErrImage, len(data), MaxImage)
	}
	format, width, height := measure(data)
	switch {
	case format == "":
		return Image{}, fmt.Errorf("%w: it is no PNG, JPEG, GIF or WebP, or is damaged: convert it", ErrImage)
	case !whole(data, format):
		return Image{}, fmt.Errorf("%w: this %s is damaged or truncated: create it again", ErrImage, format)
	case width < 1 || height < 1 || width > MaxImageSide || height > MaxImageSide:
		return Image{}, fmt.Errorf("%w: it has %d x %d pixels, at most %d x %d are taken: make it smaller", ErrImage, width, height, MaxImageSide, MaxImageSide)
	}
	return Image{blob.Sum(data), int64(len(data)), "image/" + format}, nil
}

// measure returns the format and the size of an image according to its first bytes; ""
// if it is none.
func measure(data []byte) (format string, width, height int) {
	if c, format, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		return format, c.Width, c.Height
	}
	const head = 30
	if len(data) < head || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return "", 0, 0
	}
	switch le := binary.LittleEndian; string(data[12:16]) {
	case "VP8 ": // lossy: after a start code the sizes, of 14 bits each
		if string(data[23:26]) == "\x9d\x01\x2a" {
			return "webp", int(le.Uint16(data[26:])) & 0x3fff, int(le.Uint16(data[28:])) & 0x3fff
		}
	case "VP8L": // lossless: after a signature both less one, of 14 bits each
		if bits := le.Uint32(data[21:]); data[20] == 0x2f {
			return "webp", int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
		}
	case "VP8X": // extended: both less one, of 24 bits each
		return "webp", int(le.Uint32(data[23:])>>8) + 1, int(le.Uint32(data[26:])>>8) + 1
	}
	return "", 0, 0
}

// whole reports whether an image has its end, and a PNG the checksums of its parts. It
// does not decode the pixels: a small file may have gigabytes of them.
func whole(data []byte, format string) bool {
	switch format {
	case "png":
		for rest := data[min(8, len(data)):]; len(rest) >= 12; {
			n := int64(binary.BigEndian.Uint32(rest))
			if n > int64(len(rest))-12 || crc32.ChecksumIEEE(rest[4:8+n]) != binary.BigEndian.Uint32(rest[8+n:]) {
				return false
			}
			if string(rest[4:8]) == "IEND" {
				return true
			}
			rest = rest[12+n:]
		}
		return false
	case "jpeg":
		scan := bytes.Index(data, []byte("\xff\xda"))
		return scan >= 0 && bytes.Contains(data[scan:], []byte("\xff\xd9"))
	case "gif":
		return bytes.HasSuffix(bytes.TrimRight(data, "\x00"), []byte(";"))
	default: // webp
		return int64(binary.LittleEndian.Uint32(data[4:]))+8 <= int64(len(data))
	}
}
