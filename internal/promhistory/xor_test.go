package promhistory

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"pgregory.net/rapid"
)

// read are a chunk's samples as Prometheus reads them.
func read(data []byte) (times []int64, bits []uint64, err error) {
	c := chunkenc.NewXORChunk()
	c.Reset(data)
	it := c.Iterator(nil)
	for it.Next() == chunkenc.ValFloat {
		t, v := it.At()
		times, bits = append(times, t), append(bits, math.Float64bits(v))
	}
	return times, bits, it.Err()
}

func drawChunk(t *rapid.T) []byte {
	c := chunkenc.NewXORChunk()
	app, _ := c.Appender()
	at, distance := rapid.Int64Range(-1e15, 1e15).Draw(t, "first"), rapid.Int64Range(0, 1<<20).Draw(t, "distance")
	jitter := rapid.SampledFrom([]int64{0, 0, 1, 8000, 8193, 60_000, 600_000, 1 << 40}).Draw(t, "jitter")
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	r, v := uint64(rapid.Uint32().Draw(t, "seed")), 100.0
	for range rapid.IntRange(0, 150).Draw(t, "samples") {
		r = r*6364136223846793005 + 1442695040888963407
		switch kind {
		case 0: // noise
			v = math.Float64frombits(r)
		case 1: // counts a minute
			v = float64(r>>40%1000) / 60
		case 2: // a level that seldom moves
			if r>>40%7 == 0 {
				v = float64(r >> 50)
			}
		case 3:
			v *= 1 + float64(r>>40%100)/1e4
		case 4:
			v = []float64{0, math.NaN(), math.Inf(1), math.Float64frombits(staleNaN), -1, v}[r>>40%6]
		}
		app.Append(0, at, v)
		at += distance
		if jitter > 0 && r>>45%5 == 0 {
			at += int64(r>>20) % jitter
		}
	}
	return c.Bytes()
}

func TestAChunkIsReadAsPrometheusReadsIt(t *testing.T) {
	var s samples
	rapid.Check(t, func(t *rapid.T) {
		data := drawChunk(t)
		wrong := rapid.IntRange(0, 4).Draw(t, "broken")
		if n := wrong; n > 0 { // what a network makes of it
			data = append([]byte(nil), data...)
			for range n {
				data[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] = rapid.Byte().Draw(t, "by")
			}
			data = data[:rapid.IntRange(2, len(data)).Draw(t, "cut")]
		}
		times, bits, broken := read(data)
		err := s.decode(data)
		if err == nil && broken != nil || err != nil && wrong == 0 {
			t.Fatalf("%v, Prometheus says %v", err, broken)
		}
		if err != nil { // of a value that is cut Prometheus makes up the rest
			return
		}
		if len(s.times) != len(times) || len(s.values) != len(times) {
			t.Fatalf("%d times and %d values, Prometheus reads %d", len(s.times), len(s.values), len(times))
		}
		regular := true
		for i := range times {
			if s.times[i] != times[i] || math.Float64bits(s.values[i]) != bits[i] {
				t.Fatalf("sample %d is %d, %x, Prometheus reads %d, %x", i, s.times[i], math.Float64bits(s.values[i]), times[i], bits[i])
			}
			regular = regular && (i == 0 || times[i]-times[i-1] == times[1]-times[0])
		}
		if s.regular && !regular {
			t.Fatalf("%v is taken for regular", times)
		}
	})
}

// Chunk by chunk or sample by sample, a grid holds the same.
func TestAGridTakesChunksAsItTakesSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step, steps = 60_000, 200
		from := rapid.Int64Range(0, 1e12).Draw(t, "from")
		grids := [2]*grid{}
		for i := range grids {
			grids[i] = &grid{from: from, step: step, times: make([]int64, steps), values: make([]float64, steps), most: 1 << 20}
			grids[i].begin()
		}
		for range rapid.IntRange(1, 4).Draw(t, "frames") {
			before := grids[0].newest
			for range rapid.IntRange(1, 3).Draw(t, "chunks") {
				c := chunkenc.NewXORChunk()
				app, _ := c.Appender()
				at := from + rapid.Int64Range(-20, steps).Draw(t, "at")*step + rapid.SampledFrom([]int64{0, 0, 1, 59_999}).Draw(t, "offset")
				distance := rapid.SampledFrom([]int64{step, step, step, step / 2, step + 1}).Draw(t, "distance")
				for i := range rapid.IntRange(0, 120).Draw(t, "samples") {
					app.Append(0, at+int64(i)*distance, float64(i))
				}
				if err := grids[0].chunk.decode(c.Bytes()); err != nil {
					t.Fatal(err)
				}
				grids[1].chunk = grids[0].chunk
				if !grids[0].row(before) {
					grids[0].each(before)
				}
				grids[1].each(before)
			}
		}
		a, b := grids[0], grids[1]
		if a.first != b.first || a.last != b.last || a.newest != b.newest || a.twin != b.twin || a.samples != b.samples {
			t.Fatalf("%d to %d, newest %d, twin %t, %d samples; one by one %d to %d, %d, %t, %d", a.first, a.last, a.newest, a.twin, a.samples, b.first, b.last, b.newest, b.twin, b.samples)
		}
		for i := range a.times {
			if a.times[i] != b.times[i] || a.times[i] != 0 && a.values[i] != b.values[i] {
				t.Fatalf("step %d is %d, %v; one by one %d, %v", i, a.times[i], a.values[i], b.times[i], b.values[i])
			}
		}
	})
}

func BenchmarkDecodeAChunk(b *testing.B) {
	c := chunkenc.NewXORChunk()
	app, _ := c.Appender()
	r := uint64(1)
	for i := range 120 {
		r = r*6364136223846793005 + 1442695040888963407
		app.Append(0, int64(i)*60_000, 100+float64(r>>11)/(1<<50))
	}
	b.Run("whole", func(b *testing.B) {
		var s samples
		for b.Loop() {
			if err := s.decode(c.Bytes()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		var it chunkenc.Iterator
		for b.Loop() {
			it = c.Iterator(it)
			for it.Next() == chunkenc.ValFloat {
				it.At()
			}
		}
	})
}
