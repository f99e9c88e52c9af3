package gcra

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

// Whatever a bucket's state, the time and the cost are, its arithmetic ends with
// an answer: the store in memory holds a lock over it, and relies on that.
func TestABucketsArithmeticIsTotal(t *testing.T) {
	number := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, math.MaxInt64}), rapid.Int64Range(-1e9, 1e9))
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{rlc.TokenBucket, rlc.LeakyBucket}).Draw(t, "kind")
		l, err := CompileAs(kind, rlc.Limit{Rate: rlc.Rate(rapid.Float64Range(0, 1e9).Draw(t, "rate")), Burst: rlc.Burst(rapid.Int64Range(0, 1e9).Draw(t, "burst"))})
		if err != nil {
			t.Skip()
		}
		s := State{Debt: number.Draw(t, "debt"), At: number.Draw(t, "at"), End: number.Draw(t, "end"), Prev: number.Draw(t, "prev")}
		for range 3 {
			l.TakeFrom(&s, number.Draw(t, "now"), number.Draw(t, "cost"))
			l.Settle(&s, number.Draw(t, "charged"), number.Draw(t, "by"))
			l.Idle(s, number.Draw(t, "then"))
		}
	})
}
