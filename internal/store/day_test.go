package store

import (
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

var monday = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

func genRate() *rapid.Generator[rlc.Rate] {
	return rapid.Custom(func(t *rapid.T) rlc.Rate {
		if rapid.Bool().Draw(t, "narrow") {
			return rlc.Rate(rapid.Float32Range(0, math.MaxFloat32).Draw(t, "rate32"))
		}
		return rlc.Rate(rapid.Float64Range(0, math.MaxFloat64).Draw(t, "rate64"))
	})
}

func genDay() *rapid.Generator[rlc.SeriesDay] {
	return rapid.Custom(func(t *rapid.T) rlc.SeriesDay {
		d := rlc.SeriesDay{Series: "s", Day: monday, TailFloor: genRate().Draw(t, "floor")}
		for n := range hoursADay {
			if rapid.Bool().Draw(t, "gap") {
				continue
			}
			h := rlc.Hour{
				Start:     monday.Add(time.Duration(n) * time.Hour),
				Max:       genRate().Draw(t, "max"),
				Mean:      genRate().Draw(t, "mean"),
				Present:   rapid.IntRange(0, 3600).Draw(t, "present"),
				Expected:  rapid.IntRange(0, 3600).Draw(t, "expected"),
				Unhealthy: rapid.Bool().Draw(t, "unhealthy"),
			}
			h.P99 = h.Max
			if rapid.Bool().Draw(t, "apart") {
				h.P99 = genRate().Draw(t, "p99")
			}
			if rapid.Bool().Draw(t, "enforced") {
				h.Partial = rapid.IntRange(0, 3600).Draw(t, "partial")
				h.Drops = rlc.Ratio(rapid.Float64Range(0, 1).Draw(t, "drops"))
			}
			d.Hours = append(d.Hours, h)
		}
		at := int64(0)
		unit := rapid.SampledFrom([]int64{1, 15e6, 60e6}).Draw(t, "unit")
		for at < 86400e6 && rapid.IntRange(0, 20).Draw(t, "more") > 0 {
			d.Tail = append(d.Tail, rlc.Sample{Time: monday.Add(time.Duration(at) * time.Microsecond), Rate: genRate().Draw(t, "sample")})
			at += unit * rapid.Int64Range(1, 2000).Draw(t, "distance")
		}
		return d
	})
}

func TestWhatIsReadOfADayIsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genDay().Draw(t, "day")
		b, err := appendDay([]byte("before"), &want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeDay(monday, b[len("before"):], rlc.SeriesDay{})
		if err != nil {
			t.Fatal(err)
		}
		got.Series = "s"
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\n got %+v\nwant %+v", got, want)
		}
	})
}

func TestADamagedDayIsAnError(t *testing.T) {
	d := minuteDay(rand.New(rand.NewPCG(1, 1)), false)
	good, err := appendDay(nil, &d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			if _, err := decodeDay(monday, bad, rlc.SeriesDay{}); !errors.Is(err, errCorrupt) {
				t.Fatalf("bit %d of byte %d flipped: %v, want it refused", bit, i, err)
			}
		}
		if _, err := decodeDay(monday, good[:i], rlc.SeriesDay{}); !errors.Is(err, errCorrupt) {
			t.Fatalf("cut to %d of %d bytes: %v, want it refused", i, len(good), err)
		}
	}
	for _, b := range [][]byte{append(good, 0), nil} {
		if _, err := decodeDay(monday, b, rlc.SeriesDay{}); !errors.Is(err, errCorrupt) {
			t.Errorf("%d bytes: %v, want them refused", len(b), err)
		}
	}
}

// A body with a right checksum and any content: an error or a day that
// encodes to a body that decodes to the same day; never a panic.
func FuzzDecodeDay(f *testing.F) {
	for _, wide := range []bool{false, true} {
		d := minuteDay(rand.New(rand.NewPCG(1, 1)), wide)
		b, err := appendDay(nil, &d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-4])
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 2})
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := decodeBody(monday, body, rlc.SeriesDay{})
		if err != nil {
			if !errors.Is(err, errCorrupt) {
				t.Fatalf("error %v, want one that says corrupt", err)
			}
			return
		}
		d.Series = "s"
		b, err := appendDay(nil, &d)
		if err != nil {
			t.Fatalf("it decodes to a day that cannot be written: %v", err)
		}
		again, err := decodeDay(monday, b, rlc.SeriesDay{})
		again.Series = "s"
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Fatalf("written again it is another day: %v", err)
		}
	})
}

func TestChecksumIsTheStandardCRC32C(t *testing.T) {
	// RFC 3720, B.4: 32 bytes of zeros give 8a9136aa.
	if got := crc32.Checksum(make([]byte, 32), castagnoli); got != 0x8a9136aa {
		t.Errorf("CRC-32C of 32 zeros is %08x, want 8a9136aa", got)
	}
}

// minuteDay is a day of minute data of which 5 % (72 samples, in bunches) lie
// above the floor. Wide rates fill a float64; others are rounded to float32.
func minuteDay(r *rand.Rand, wide bool) rlc.SeriesDay {
	rate := func() rlc.Rate {
		v := 1000 * r.Float64()
		if !wide {
			v = float64(float32(v))
		}
		return rlc.Rate(v)
	}
	d := rlc.SeriesDay{Series: "s", Day: monday, TailFloor: rate()}
	for n := range hoursADay {
		m := rate()
		d.Hours = append(d.Hours, rlc.Hour{Start: monday.Add(time.Duration(n) * time.Hour), Max: m, P99: m, Mean: rate(), Present: 60, Expected: 60})
	}
	for n := range 72 {
		d.Tail = append(d.Tail, rlc.Sample{Time: monday.Add(time.Duration(600+3*n+r.IntN(3)) * time.Minute), Rate: rate()})
	}
	return d
}

// 24 hours and 72 tail samples: 14 B of frame and counts, 24 × (3 + 2 values)
// + 3 + 72 × (1 + 1 value) + 4 B checksum.
func TestADayIsSmall(t *testing.T) {
	for _, c := range []struct {
		wide bool
		want int
	}{
		{false, 14 + 24*(3+8) + 1 + 72*(1+4) + 4}, // 641 B, 28 days: 18 kB
		{true, 14 + 24*(3+16) + 1 + 72*(1+8) + 4}, // 28 days: 31 kB
	} {
		d := minuteDay(rand.New(rand.NewPCG(1, 1)), c.wide)
		b, err := appendDay(nil, &d)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("wide %v: %d B a day, %d B for 28", c.wide, len(b), 28*len(b))
		if len(b) > c.want+3 {
			t.Errorf("wide %v: %d bytes, want at most about %d", c.wide, len(b), c.want)
		}
	}
}
