package web

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// count renders a number of requests or things in a sentence or a tile: whole,
// with thousands commas; from a million on three digits and a word, as nobody
// reads seven.
func count(n float64) string {
	switch a := math.Abs(n); {
	case a >= 999.5e6:
		return three(n/1e9) + " billion"
	case a >= 1e6-0.5:
		return three(n/1e6) + " million"
	}
	return digits(n)
}

// digits renders a number of requests in a column, where it is compared with
// those above and below it: every digit, whatever its size.
func digits(n float64) string {
	if a := math.Abs(n); a > 0 && a < 0.5 {
		return "< 1"
	}
	return rlc.Grouped(strconv.FormatFloat(math.Round(n), 'f', 0, 64))
}

// bounded is a count in a column that may be a lower bound.
func bounded(n float64, atLeast bool) string {
	if atLeast {
		return "≥ " + digits(n)
	}
	return digits(n)
}

// three is a number of 1 or more with three significant digits, whole from a
// hundred on.
func three(n float64) string {
	switch a := math.Abs(n); {
	case a < 9.995:
		return trim(n, 2)
	case a < 99.95:
		return trim(n, 1)
	}
	return trim(n, 0)
}

// unknown stands for a figure that could not be read; 0 would be a claim.
const unknown = "unknown"

// whole is a number of requests for a program: a whole number.
func whole(n float64) string { return strconv.FormatFloat(math.Round(n), 'f', 0, 64) }

// exact renders a number with every digit that matters, for hovering.
func exact(n float64) string { return rlc.Number(n) }

// rate renders requests per second: three significant digits below 100, whole
// above.
func rate(r float64) string {
	switch a := math.Abs(r); {
	case a == 0:
		return "0"
	case a < 0.01:
		return "< 0.01"
	case a < 10:
		return trim(r, 2)
	case a < 100:
		return trim(r, 1)
	case a >= 1e7:
		return trim(r/1e6, 1) + " M"
	}
	return rlc.Grouped(strconv.FormatFloat(math.Round(r), 'f', 0, 64))
}

func trim(n float64, decimals int) string {
	s := strconv.FormatFloat(n, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return rlc.Grouped(s)
}

// percent renders a share between 0 and 1.
func percent(share float64) string {
	p := share * 100
	switch a := math.Abs(p); {
	case a == 0:
		return "0\u00a0%"
	case a < 0.001:
		return "< 0.001\u00a0%"
	case a < 0.1:
		return trim(p, 3) + "\u00a0%"
	case a < 10:
		return trim(p, 2) + "\u00a0%"
	}
	return trim(p, 1) + "\u00a0%"
}

// signed renders a relative change or a headroom with its sign.
func signed(share float64) string {
	if math.IsInf(share, 0) || math.IsNaN(share) {
		return "—"
	}
	p := math.Round(share * 100)
	if p == 0 && share != 0 {
		return "± < 1\u00a0%"
	}
	if p > 0 {
		return "+" + count(p) + "\u00a0%"
	}
	return count(p) + "\u00a0%"
}

func limitText(l *rlc.Limit) string {
	if l == nil {
		return "—"
	}
	return rate(float64(l.Rate))
}

func limitExact(l *rlc.Limit) string {
	if l == nil {
		return ""
	}
	return exact(float64(l.Rate)) + " req/s, burst " + exact(float64(l.Burst))
}

// span renders how long something lasted.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "< 1 s"
	case d < 2*time.Minute && d%time.Minute != 0:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
	case d < 48*time.Hour:
		return trim(d.Hours(), 1) + " h"
	}
	return trim(d.Hours()/24, 1) + " d"
}

func stepText(d time.Duration) string {
	if d > 0 && d%time.Minute == 0 {
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(float64(n)) + " " + many
}

// short is the start of a commit's hash.
func short(hash string) string { return hash[:min(len(hash), 7)] }

func commitAnd(hash string) string {
	if hash == "" {
		return ""
	}
	return " at " + short(hash)
}

// The addresses of pages. Names are data: each is escaped as one segment.

func serviceURL(service string) string { return "/services/" + segment(service) }

func bucketURL(service, bucket string, key rlc.Key) string {
	u := serviceURL(service) + "/buckets/" + segment(bucket)
	if len(key) > 0 {
		u += "?key=" + url.QueryEscape(key.String())
	}
	return u
}

// segment escapes a name so that neither a browser nor a proxy takes it for a
// step in the path: "." and ".." are browsers' own, even when escaped, and no
// valid name.
func segment(name string) string { return url.PathEscape(name) }

func proposalURL(id string) string { return "/proposals/" + url.PathEscape(id) }

// runsURL is where a run of a service ("" for all) is asked for. Names travel
// in addresses, escaped, never in hidden fields.
func runsURL(service string) string {
	if service == "" {
		return "/runs"
	}
	return "/runs?service=" + query(service)
}

func runURL(id string) string { return "/runs/" + url.PathEscape(id) }

// query escapes a value of a query parameter.
func query(s string) string { return url.QueryEscape(s) }

// quotaName is a quota's short name for people: the bucket, and the key's
// values.
func quotaName(bucket string, key rlc.Key) string {
	if len(key) == 0 {
		return bucket
	}
	names := make([]string, 0, len(key))
	for n := range key {
		names = append(names, n)
	}
	rlc.SortAttributes(names)
	for i, n := range names {
		names[i] = key[n]
		if names[i] == "" {
			names[i] = "(empty)"
		}
	}
	return bucket + " / " + strings.Join(names, " · ")
}

func modeChip(m rlc.Mode) ui.Chip {
	switch m {
	case rlc.Enforce:
		return ui.Chip{Mode: "enforce", Text: "enforce"}
	case rlc.Shadow:
		return ui.Chip{Mode: "shadow", Text: "shadow"}
	}
	return ui.Chip{Mode: "none", Text: "none"}
}

// Geometry. The gauge's tick, the limit, lies at 72 % of its 88 units.
const tick = 63.4

func gauge(peak, limit float64, real bool) ui.Gauge {
	if limit <= 0 || peak < 0 {
		return ui.Gauge{}
	}
	full := peak / limit * tick
	g := ui.Gauge{Show: true, Fill: coord(min(full, tick)), Real: real}
	if full > tick {
		g.Over = coord(min(full-tick, 88-tick))
	}
	return g
}

func coord(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// headroom is the fraction that a limit adds above the peak that counts: (limit −
// peak) / peak, as a policy's parameter of that name. It is
// below zero where the step lies above the limit.
func headroom(limit *rlc.Limit, peak rlc.Rate) (share float64, known bool) {
	if limit == nil || limit.Rate <= 0 || peak <= 0 {
		return 0, false
	}
	return float64((limit.Rate - peak) / peak), true
}
