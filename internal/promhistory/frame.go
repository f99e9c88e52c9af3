package promhistory

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"
)

// piece is a part of one label set's samples. It lies in the stream's buffer
// and holds until the next is read: a day of ten thousand series is half a
// million chunks, and none of them is copied.
type piece struct {
	labels []byte // the label fields as they came; equal bytes are equal label sets
	chunks []xorChunk
}

type xorChunk struct {
	encoding int32 // prompb.Chunk_Encoding
	data     []byte
}

var errProtobuf = errors.New("not what remote read answers")

// parse reads a ChunkedSeries message.
func (p *piece) parse(message []byte) error {
	p.labels, p.chunks = p.labels[:0], p.chunks[:0]
	return fields(message, func(f field) error {
		switch f.number {
		case 1: // labels
			p.labels = append(p.labels, f.whole...)
			return f.want(protowire.BytesType)
		case 2: // chunks
			var c xorChunk
			err := fields(f.bytes, func(f field) error {
				switch f.number {
				case 3:
					c.encoding = int32(f.varint)
					return f.want(protowire.VarintType)
				case 4:
					c.data = f.bytes
					return f.want(protowire.BytesType)
				}
				return nil
			})
			p.chunks = append(p.chunks, c)
			return errors.Join(err, f.want(protowire.BytesType))
		}
		return nil
	})
}

// labelSet decodes label fields.
func labelSet(labels []byte) (model.Metric, error) {
	m := model.Metric{}
	err := fields(labels, func(f field) error {
		var l prompb.Label
		if err := l.Unmarshal(f.bytes); err != nil {
			return err
		}
		m[model.LabelName(l.Name)] = model.LabelValue(l.Value)
		return nil
	})
	return m, err
}

// field is one field of a protobuf message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	whole  []byte // with its tag
	bytes  []byte // of a BytesType
	varint uint64 // of a VarintType
}

func (f field) want(kind protowire.Type) error {
	if f.kind != kind {
		return fmt.Errorf("%w: field %d is of type %d", errProtobuf, f.number, f.kind)
	}
	return nil
}

// fields goes over the fields of a message.
func fields(message []byte, use func(field) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return fmt.Errorf("%w: %w", errProtobuf, protowire.ParseError(tag))
		}
		f := field{number: number, kind: kind}
		var n int
		switch rest := message[tag:]; kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(rest)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(rest)
		default:
			n = protowire.ConsumeFieldValue(number, kind, rest)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errProtobuf, protowire.ParseError(n))
		}
		f.whole, message = message[:tag+n], message[tag+n:]
		if err := use(f); err != nil {
			return err
		}
	}
	return nil
}

// frames reads a stream: each frame is a varint length, the CRC-32C of the
// message (big endian) and the message, a ChunkedReadResponse. A frame is at
// most most bytes long and a stream streamBodies times that.
func frames(r *bufio.Reader, most int64, use func(*piece) error) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	var frame bytes.Buffer
	var p piece
	for total := int64(0); ; {
		if _, err := r.Peek(1); err == io.EOF {
			return nil
		}
		size, err := binary.ReadUvarint(r)
		if err != nil {
			return fmt.Errorf("%w: a broken frame: %w", ErrBusy, err)
		}
		if total += int64(min(size, math.MaxInt32)); size > uint64(most) || total > streamBodies*most {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
		}
		var sum [4]byte
		if _, err := io.ReadFull(r, sum[:]); err != nil {
			return err
		}
		frame.Reset()
		if _, err := io.CopyN(&frame, r, int64(size)); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		if crc32.Checksum(frame.Bytes(), table) != binary.BigEndian.Uint32(sum[:]) {
			return fmt.Errorf("%w: a broken frame", ErrBusy)
		}
		err = fields(frame.Bytes(), func(f field) error {
			if f.number != 1 { // chunked_series
				return nil
			}
			if err := errors.Join(f.want(protowire.BytesType), p.parse(f.bytes)); err != nil {
				return err
			}
			return use(&p)
		})
		switch {
		case errors.Is(err, errProtobuf):
			return fmt.Errorf("%w: a broken frame: %w", ErrBusy, err)
		case err != nil:
			return err
		}
	}
}
