package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/ulid"
)

// Key is the primary key of an event in the inbox: 16 bytes, computed from the event by [KeyOf].
type Key [16]byte

// String returns the key in the form of a UUID, as PostgreSQL prints it.
func (k Key) String() string {
	var b [36]byte
	hex.Encode(b[0:8], k[0:4])
	hex.Encode(b[9:13], k[4:6])
	hex.Encode(b[14:18], k[6:8])
	hex.Encode(b[19:23], k[8:10])
	hex.Encode(b[24:36], k[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'

	return string(b[:])
}

func (k Key) hex() string { return hex.EncodeToString(k[:]) }

var errNotAKey = errors.New("inbox: not a key")

// Scan reads a key from a column of type uuid, or of 16 bytes. It implements [sql.Scanner].
func (k *Key) Scan(src any) error {
	var text string

	switch src := src.(type) {
	case []byte:
		if len(src) == len(k) {
			copy(k[:], src)

			return nil
		}

		text = string(src)
	case string:
		text = src
	default:
		return fmt.Errorf("%w: %T", errNotAKey, src)
	}

	return k.parse(text)
}

// parse reads the form of String.
func (k *Key) parse(text string) error {
	parsed, err := uuid.Parse(text)
	if err != nil || Key(parsed).String() != text {
		return fmt.Errorf("%w: %q", errNotAKey, printable(text))
	}

	*k = Key(parsed)

	return nil
}

// KeyOf returns the key of an event. It depends on Consumer, Source and ID, and on the event's time: the one that the
// id carries when it is a UUIDv7 or a ULID, otherwise ev.Time. Type is not part of it.
//
//	timed:   key[0:6] = unix milliseconds, big endian; key[6:16] = SHA-256(lp(consumer) lp(source) lp(id))[0:10]
//	untimed: key = SHA-256(lp(consumer) lp(source) lp(id))[0:16], with the top bit of key[0] set
//
// where lp(s) is the length of s in bytes as a big-endian uint32, followed by s. Times before 1970, and of 2^47
// milliseconds and more, make an untimed key. The length prefixes keep ("a", "bc") apart from ("ab", "c"), and hashing
// raw bytes means that no collation, case folding or length limit of a database can merge two ids. The leading time
// keeps inserts at the end of the index (as UUIDv7 does, RFC 9562 section 6.13) and lets a table be partitioned by it.
func KeyOf(ev Event) Key {
	var (
		key    Key
		hashed = hashIdentity(ev)
	)

	t, ok := timeOfID(ev.ID)
	if !ok {
		t = ev.Time
	}

	ms := t.UnixMilli()
	if ms < 0 || ms >= 1<<47 {
		copy(key[:], hashed[:])
		key[0] |= 0x80

		return key
	}

	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(ms))
	copy(key[0:6], stamp[2:8])
	copy(key[6:16], hashed[:])

	return key
}

func hashIdentity(ev Event) [sha256.Size]byte {
	var room [256]byte // keeps ids of the usual length off the heap
	b := appendPrefixed(room[:0], ev.Consumer)
	b = appendPrefixed(b, ev.Source)
	b = appendPrefixed(b, ev.ID)

	return sha256.Sum256(b)
}

// timeOfID reads the creation time out of ids that carry one: UUIDv7 (RFC 9562) in its 36-character form and ULID
// (github.com/ulid/spec), both in upper and lower case.
func timeOfID(id string) (time.Time, bool) {
	switch len(id) {
	case 36:
		u, err := uuid.Parse(id)
		if err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			return time.Time{}, false
		}

		return timeOfBits48(u[0:6]), true
	case ulid.EncodedSize:
		u, err := ulid.ParseStrict(id)
		if err != nil {
			return time.Time{}, false
		}

		return timeOfBits48(u[0:6]), true
	default:
		return time.Time{}, false
	}
}

func timeOfBits48(b []byte) time.Time {
	ms := uint64(binary.BigEndian.Uint16(b[0:2]))<<32 | uint64(binary.BigEndian.Uint32(b[2:6]))

	return time.UnixMilli(int64(ms)).UTC()
}
