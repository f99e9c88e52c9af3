package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// A stored day is, in this order:
//
//	version      1 byte, 1
//	flags        1 byte: 1 hours wide, 2 tail wide
//	tail floor   8 bytes
//	hours        uvarint count, then for each
//	  head       1 byte: hour of the day (5 bits), 32 p99 equals max,
//	             64 unhealthy, 128 partial and drops follow
//	  present    uvarint
//	  expected   uvarint
//	  partial    uvarint, drops 8 bytes (only with 128)
//	  max, mean  a value each
//	  p99        a value (only without 32)
//	tail         uvarint count, then (if it is not 0)
//	  unit       uvarint, microseconds: the greatest common divisor of the
//	             distances below
//	  distances  uvarint each, in units: the first from midnight, the others
//	             from the one before
//	  rates      a value each
//	checksum     4 bytes, CRC-32C of all before
//
// Numbers are little endian. A value takes 4 bytes (float32) where every value
// of its group (hours or tail) is exactly a float32, else the group is wide and
// takes 8 (float64): what is read is what was written. Series, day and sealed
// are columns.
const (
	dayVersion  = 1
	hoursWide   = 1
	tailWide    = 2
	hourOfDay   = 31
	p99IsMax    = 32
	unhealthy   = 64
	partialLoad = 128

	hoursADay = 24
	// maxTail bounds what a decoder allocates: a sample a second.
	maxTail = 86400
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCorrupt = errors.New("corrupt day")

// appendDay appends the encoding of d to b. A day that the encoding cannot
// hold is rlc.ErrInvalid.
func appendDay(b []byte, d *rlc.SeriesDay) ([]byte, error) {
	if d.Series == "" || !d.Day.Equal(d.Day.UTC().Truncate(24*time.Hour)) {
		return nil, fmt.Errorf("%w: a day needs a series and starts at midnight UTC", rlc.ErrInvalid)
	}
	start := len(b)
	flags := byte(0)
	for _, h := range d.Hours {
		if !narrow(h.Max) || !narrow(h.Mean) || !narrow(h.P99) {
			flags |= hoursWide
		}
	}
	for _, s := range d.Tail {
		if !narrow(s.Rate) {
			flags |= tailWide
		}
	}
	if err := sound(d.TailFloor); err != nil {
		return nil, err
	}
	b = append(b, dayVersion, flags)
	b = appendValue(b, d.TailFloor, true)
	b, err := appendHours(b, d, flags&hoursWide != 0)
	if err != nil {
		return nil, err
	}
	if b, err = appendTail(b, d, flags&tailWide != 0); err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

func appendHours(b []byte, d *rlc.SeriesDay, wide bool) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(d.Hours)))
	last := -1
	for _, h := range d.Hours {
		since := h.Start.Sub(d.Day)
		n := int(since / time.Hour)
		if since%time.Hour != 0 || n <= last || n >= hoursADay {
			return nil, fmt.Errorf("%w: hour %s is not the next full hour of its day", rlc.ErrInvalid, h.Start.Format(time.RFC3339))
		}
		last = n
		if err := errors.Join(sound(h.Max), sound(h.Mean), sound(h.P99), sound(rlc.Rate(h.Drops))); err != nil {
			return nil, err
		}
		if h.Present < 0 || h.Expected < 0 || h.Partial < 0 || max(h.Present, h.Expected, h.Partial) > math.MaxInt32 {
			return nil, fmt.Errorf("%w: hour %s counts its steps as %d, %d and %d", rlc.ErrInvalid, h.Start.Format(time.RFC3339), h.Present, h.Expected, h.Partial)
		}
		head := byte(n)
		if h.P99 == h.Max {
			head |= p99IsMax
		}
		if h.Unhealthy {
			head |= unhealthy
		}
		if h.Partial != 0 || h.Drops != 0 {
			head |= partialLoad
		}
		b = append(b, head)
		b = binary.AppendUvarint(b, uint64(h.Present))
		b = binary.AppendUvarint(b, uint64(h.Expected))
		if head&partialLoad != 0 {
			b = binary.AppendUvarint(b, uint64(h.Partial))
			b = appendValue(b, rlc.Rate(h.Drops), true)
		}
		b = appendValue(b, h.Max, wide)
		b = appendValue(b, h.Mean, wide)
		if head&p99IsMax == 0 {
			b = appendValue(b, h.P99, wide)
		}
	}
	return b, nil
}

func appendTail(b []byte, d *rlc.SeriesDay, wide bool) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(d.Tail)))
	if len(d.Tail) == 0 {
		return b, nil
	}
	if len(d.Tail) > maxTail {
		return nil, fmt.Errorf("%w: a tail of %d samples, at most %d", rlc.ErrInvalid, len(d.Tail), maxTail)
	}
	var unit int64
	last := d.Day
	for i, s := range d.Tail {
		since := s.Time.Sub(last)
		if since < 0 || (since == 0 && i > 0) || since%time.Microsecond != 0 || s.Time.Sub(d.Day) >= 24*time.Hour {
			return nil, fmt.Errorf("%w: sample at %s is not the next of its day", rlc.ErrInvalid, s.Time.Format(time.RFC3339Nano))
		}
		if err := sound(s.Rate); err != nil {
			return nil, err
		}
		unit = gcd(unit, since.Microseconds())
		last = s.Time
	}
	unit = max(unit, 1) // a single sample at midnight
	b = binary.AppendUvarint(b, uint64(unit))
	last = d.Day
	for _, s := range d.Tail {
		b = binary.AppendUvarint(b, uint64(s.Time.Sub(last).Microseconds()/unit))
		last = s.Time
	}
	for _, s := range d.Tail {
		b = appendValue(b, s.Rate, wide)
	}
	return b, nil
}

// decodeDay reads what appendDay wrote for day, without Series and Sealed, into
// the room of the hours and the tail of used. It returns an error on any input
// that appendDay does not write.
func decodeDay(day time.Time, b []byte, used rlc.SeriesDay) (rlc.SeriesDay, error) {
	if len(b) < 4 {
		return rlc.SeriesDay{}, fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return rlc.SeriesDay{}, fmt.Errorf("%w: its checksum is wrong", errCorrupt)
	}
	return decodeBody(day, body, used)
}

func decodeBody(day time.Time, b []byte, used rlc.SeriesDay) (rlc.SeriesDay, error) {
	r := reader{rest: b}
	if v := r.byte(); r.err == nil && v != dayVersion {
		return rlc.SeriesDay{}, fmt.Errorf("%w: version %d, want %d", errCorrupt, v, dayVersion)
	}
	flags := r.byte()
	d := rlc.SeriesDay{Day: day, TailFloor: r.value(true)}
	if n := r.count(hoursADay); n > 0 {
		d.Hours = slices.Grow(used.Hours[:0], n)
		last := -1
		for range n {
			h := r.hour(day, flags&hoursWide != 0, &last)
			d.Hours = append(d.Hours, h)
		}
	}
	// A sample takes at least five bytes, so the bytes left bound the tail.
	if n := r.count(min(maxTail, len(r.rest))); n > 0 {
		d.Tail = slices.Grow(used.Tail[:0], n)[:n]
		r.tail(day, d.Tail, flags&tailWide != 0)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail("bytes after its end")
	}
	if r.err != nil {
		return rlc.SeriesDay{}, r.err
	}
	return d, nil
}

// reader consumes bytes; after the first error it yields zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errCorrupt, why)
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("too short")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("a number is cut or too long")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads a number of at most limit.
func (r *reader) count(limit int) int {
	v := r.uvarint()
	if v > uint64(limit) {
		r.fail("a count is out of range")
		return 0
	}
	return int(v)
}

// value reads a rate: a float that is finite and whose sign is not set.
func (r *reader) value(wide bool) rlc.Rate {
	const inf = 0x7ff0000000000000 // and NaN and negatives lie above it
	var bits uint64
	switch {
	case wide && len(r.rest) >= 8:
		bits = binary.LittleEndian.Uint64(r.rest)
		r.rest = r.rest[8:]
	case !wide && len(r.rest) >= 4:
		bits = math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(r.rest))))
		r.rest = r.rest[4:]
	default:
		r.fail("too short")
		return 0
	}
	if bits >= inf {
		r.fail("a rate is not a finite number from 0")
		return 0
	}
	return rlc.Rate(math.Float64frombits(bits))
}

func (r *reader) hour(day time.Time, wide bool, last *int) rlc.Hour {
	head := r.byte()
	n := int(head & hourOfDay)
	if n <= *last || n >= hoursADay {
		r.fail("hours are not ascending")
	}
	*last = n
	h := rlc.Hour{
		Start:     day.Add(time.Duration(n) * time.Hour),
		Unhealthy: head&unhealthy != 0,
		Present:   r.count(math.MaxInt32),
		Expected:  r.count(math.MaxInt32),
	}
	if head&partialLoad != 0 {
		h.Partial = r.count(math.MaxInt32)
		h.Drops = rlc.Ratio(r.value(true))
	}
	h.Max, h.Mean = r.value(wide), r.value(wide)
	h.P99 = h.Max
	if head&p99IsMax == 0 {
		h.P99 = r.value(wide)
	}
	return h
}

func (r *reader) tail(day time.Time, into []rlc.Sample, wide bool) {
	const dayMicros = uint64(24 * time.Hour / time.Microsecond)
	unit := r.uvarint()
	at := uint64(0)
	for i := range into {
		step := r.uvarint()
		if unit == 0 || (step == 0 && i > 0) || step > (dayMicros-1-at)/unit {
			r.fail("samples are not ascending within their day")
			return
		}
		at += step * unit
		into[i].Time = day.Add(time.Duration(at) * time.Microsecond)
	}
	for i := range into {
		into[i].Rate = r.value(wide)
	}
}

func appendValue(b []byte, v rlc.Rate, wide bool) []byte {
	if wide {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}

// narrow reports whether a float32 holds v exactly.
func narrow(v rlc.Rate) bool { return float64(float32(v)) == float64(v) }

// sound refuses what is no rate: NaN, ±Inf, negatives (−0 included, so that
// equal days have equal bytes).
func sound(v rlc.Rate) error {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) || math.Signbit(f) {
		return fmt.Errorf("%w: rate %s", rlc.ErrInvalid, rlc.Number(f))
	}
	return nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
