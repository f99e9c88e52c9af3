package enforcer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// limitHeaders tells a client how it stands, as the IETF draft "RateLimit
// header fields for HTTP" has it. They come from an enforcing bucket only: a
// client must not slow down for a limit that drops nothing.
func (e *Enforcer) limitHeaders(h http.Header, service string, d Decision) {
	h.Set("X-Rlc-Snapshot", d.Version.String())
	if d.Bucket != "" {
		h.Set("X-Rlc-Bucket", fieldText(d.Bucket))
	}
	in := d.Enforced
	if in.Limit == nil {
		return
	}
	name := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(fieldText(service+"/"+in.Bucket)) + `"`
	quota, window := perWindow(in.Limit.Rate)
	h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d;w=%d", name, quota, window))

	t := ceil(bounded(in.Wait), time.Second)
	if d.Outcome != Drop && in.Limit.Rate > 0 {
		// Until one window's worth, or the burst where that is less, is there.
		want := float64(min(quota, int64(in.Limit.Burst)) - in.Remaining)
		t = int64(math.Ceil(want / float64(in.Limit.Rate)))
	}
	t = min(max(t, 1), hour)
	h.Set("RateLimit", fmt.Sprintf("%s;r=%d;t=%d", name, in.Remaining, t))
	if d.Outcome == Drop {
		// Jitter, so that refused clients do not come back as one.
		h.Set("Retry-After", strconv.FormatInt(min(t+rand.Int64N(max(t/2, 1)+1), hour), 10))
		if e.config.PagesURL != "" {
			page := strings.TrimSuffix(e.config.PagesURL, "/") + "/services/" + url.PathEscape(service) + "/buckets/" + url.PathEscape(in.Bucket)
			if len(in.Key) > 0 {
				page += "?key=" + url.QueryEscape(in.Key.String())
			}
			h.Set("Link", "<"+page+`>; rel="help"`)
		}
	}
}

// hour is the longest that a client is told to wait, in seconds.
const hour = 3600

// perWindow is a rate as whole requests in whole seconds: the shortest of a few
// windows in which it is exact, else the longest, rounded down.
func perWindow(r rlc.Rate) (quota, seconds int64) {
	for _, w := range []int64{1, 10, 60, 100, 600, 1000, 3600} {
		if n := float64(r) * float64(w); n >= 1 && math.Abs(n-math.Round(n)) < 1e-6 {
			return int64(math.Round(n)), w
		}
	}
	return int64(float64(r) * 3600), 3600
}

// fieldText is s as a header can hold it: printable ASCII, the rest
// percent-encoded.
func fieldText(s string) string {
	plain := func(c byte) bool { return c >= 0x20 && c < 0x7F && c != '%' }
	for i := range len(s) {
		if !plain(s[i]) {
			var b strings.Builder
			for i := range len(s) {
				if plain(s[i]) {
					b.WriteByte(s[i])
				} else {
					fmt.Fprintf(&b, "%%%02X", s[i])
				}
			}
			return b.String()
		}
	}
	return s
}
