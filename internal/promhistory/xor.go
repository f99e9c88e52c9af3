package promhistory

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// samples are those of one XOR chunk (Prometheus, tsdb/chunkenc/xor.go, after
// Facebook's Gorilla), decoded in one go: the library's iterator hands samples
// on one by one and takes three times as long, which is a quarter of what a
// first reading costs. The zero value has none.
type samples struct {
	times   []int64 // milliseconds, as they came
	values  []float64
	regular bool   // every two neighbours lie as far apart as the first two
	padded  []byte // the chunk's bits and some zeros, so that a read never leaves it
}

var errXOR = errors.New("it ends before its samples do")

// xorPad covers the most bits of a sample, 4+64 and 2+5+6+64, and a word read
// behind them.
const xorPad = 32

// bitsAt are the 64 bits at a position, of which the upper 57 count.
func bitsAt(b []byte, pos int) uint64 {
	return binary.BigEndian.Uint64(b[pos>>3:]) << (pos & 7)
}

// wide are n bits at a position, 1 to 64.
func wide(b []byte, pos int, n uint8) uint64 {
	if n <= 57 {
		return bitsAt(b, pos) >> (64 - n)
	}
	return bitsAt(b, pos)>>32<<(n-32) | bitsAt(b, pos+32)>>(96-n)
}

// decode reads a chunk, whose header is its number of samples.
func (s *samples) decode(chunk []byte) error {
	s.times, s.values, s.regular = s.times[:0], s.values[:0], true
	if len(chunk) < 2 {
		return errXOR
	}
	n, end := int(binary.BigEndian.Uint16(chunk)), 8*(len(chunk)-2)
	s.padded = append(append(s.padded[:0], chunk[2:]...), make([]byte, xorPad)...)
	if n == 0 {
		return nil
	}
	t, size := binary.Varint(s.padded)
	if size <= 0 || 8*size+64 > end {
		return errXOR
	}
	v := binary.BigEndian.Uint64(s.padded[size:])
	s.times, s.values = slices.Grow(s.times, n)[:n], slices.Grow(s.values, n)[:n]
	s.times[0], s.values[0] = t, math.Float64frombits(v)
	if n == 1 {
		return nil
	}
	pos := size + 8
	delta, size := binary.Uvarint(s.padded[pos:])
	if size <= 0 {
		return errXOR
	}
	return s.rest(8*(pos+size), end, delta)
}

// rest reads all samples but the first. The second comes delta after it, and its
// value is at pos.
func (s *samples) rest(pos, end int, delta uint64) error {
	b, times := s.padded, s.times
	values := s.values[:len(times)]
	t, v := times[0], math.Float64bits(values[0])
	var leading, trailing uint8
	for i := 1; i < len(times); i++ {
		w := bitsAt(b, pos)
		switch {
		case i == 1:
		case w>>63 == 0: // as far from the one before as that from its own
			pos, w = pos+1, w<<1
		default:
			var change int64
			change, pos = timeChange(b, pos)
			delta += uint64(change)
			s.regular = false
			w = bitsAt(b, pos)
		}
		t += int64(delta)
		if w>>63 == 0 { // the value before
			pos++
		} else {
			pos += 2
			if w>>62 == 3 {
				leading = uint8(w >> 57 & 31)
				significant := uint8(w >> 51 & 63)
				if significant == 0 {
					significant = 64
				}
				trailing = 64 - leading - significant
				pos += 11
			}
			significant := 64 - leading - trailing
			v ^= wide(b, pos, significant) << trailing
			pos += int(significant)
		}
		if pos > end {
			return errXOR
		}
		times[i], values[i] = t, math.Float64frombits(v)
	}
	return nil
}

// timeChange is by how much the distance of two samples differs from the one
// before, and where it ends. Its first bit is set.
func timeChange(b []byte, pos int) (change int64, after int) {
	w := bitsAt(b, pos)
	var size uint8
	switch {
	case w>>62 == 0b10:
		size, pos = 14, pos+2
	case w>>61 == 0b110:
		size, pos = 17, pos+3
	case w>>60 == 0b1110:
		size, pos = 20, pos+4
	default:
		return int64(wide(b, pos+4, 64)), pos + 4 + 64
	}
	x := int64(wide(b, pos, size))
	if x > 1<<(size-1) {
		x -= 1 << size
	}
	return x, pos + int(size)
}
