package planner

import (
	"encoding/binary"
	"hash"
	"math"
	"time"

	"github.com/openrlc/rlc"
)

// hashHistory feeds a history's hours and tail to sum, each number in no more
// bytes than it takes: different histories give different bytes.
func hashHistory(sum hash.Hash, h rlc.History) {
	const most, full = 128, 8 << 10 // an hour takes at most so many bytes; sum is fed by so many
	buf := make([]byte, 0, full+most)
	feed := func(least int) {
		if len(buf) > least {
			sum.Write(buf)
			buf = buf[:0]
		}
	}
	buf = binary.AppendUvarint(buf, uint64(len(h.Hours)))
	last := time.Time{}.Unix()
	for i := range h.Hours {
		x := &h.Hours[i]
		for _, r := range [...]float64{float64(x.Max), float64(x.P99), float64(x.Mean)} {
			buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(r))
		}
		start := x.Start.Unix()
		for _, n := range [...]int64{start - last, int64(x.Present), int64(x.Expected), int64(x.Partial)} {
			buf = binary.AppendVarint(buf, n)
		}
		last = start
		unhealthy := byte(0)
		if x.Unhealthy {
			unhealthy = 1
		}
		buf = append(buf, unhealthy)
		for _, r := range [...]float64{float64(x.Drops), float64(x.Second)} { // 0 nearly always
			buf = binary.AppendUvarint(buf, math.Float64bits(r))
		}
		feed(full)
	}
	last = time.Time{}.UnixMicro()
	for i := range h.Tail {
		x := &h.Tail[i]
		buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(float64(x.Rate)))
		at := x.Time.UnixMicro()
		buf = binary.AppendVarint(buf, at-last)
		last = at
		feed(full)
	}
	feed(0)
}
