package match_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
)

// The universe is small, so that every request of it can be tried: a value per
// pattern, one that only a prefix matches, one that only "*" matches, one that
// the profile calls unknown, and none.
var (
	names    = []string{"caller", "procedure", "zone"}
	values   = []string{"", "a", "ab", "abc", "b", "z", "unknown"}
	patterns = []string{"a", "ab", "b", "a*", "ab*", "*", "absent", "a|b", "ab|b", "abc|a", ""}
)

func services() *rapid.Generator[*rlc.Service] {
	return rapid.Custom(func(t *rapid.T) *rlc.Service {
		var buckets []rlc.Bucket
		for i := range rapid.IntRange(0, 6).Draw(t, "buckets") {
			words := ""
			for _, n := range names {
				p := rapid.SampledFrom(patterns).Draw(t, n)
				if p != "" {
					words += n + "=" + p + " "
				}
				if p != "absent" && rapid.IntRange(0, 3).Draw(t, "each") == 0 {
					words += "each:" + n + " "
				}
			}
			role := rapid.SampledFrom([]rlc.Role{rlc.QuotaRole, rlc.QuotaRole, rlc.CapRole}).Draw(t, "role")
			buckets = append(buckets, bucket(fmt.Sprintf("b%d", i), role, words))
		}
		return service(buckets...)
	})
}

func requests(yield func(rlc.Attributes) bool) {
	for _, c := range values {
		for _, p := range values {
			for _, z := range values {
				if !yield(rlc.Attributes{"caller": c, "procedure": p, "zone": z}) {
					return
				}
			}
		}
	}
}

// rank is the specificity of b for this request, written from config.md 3
// without the matcher: per attribute a number, smaller is more specific; nil
// where b does not match.
func rank(s *rlc.Service, b *rlc.Bucket, request rlc.Attributes) []int {
	var ranks []int
	for _, n := range names {
		v := request[n]
		if slices.Contains(s.Unknown[n], v) {
			v = ""
		}
		p, mentioned := b.Match[n]
		if !mentioned && slices.Contains(b.Each, n) {
			p, mentioned = rlc.Pattern{Kind: rlc.Present}, true
		}
		fits, r := true, 1000
		if mentioned {
			switch p.Kind {
			case rlc.Exact:
				fits, r = v == p.Values[0], 0
			case rlc.Absent:
				fits, r = v == "", 1
			case rlc.List:
				fits, r = slices.Contains(p.Values, v), 2
			case rlc.Prefix:
				fits, r = len(v) >= len(p.Values[0]) && v[:len(p.Values[0])] == p.Values[0], 100-len(p.Values[0])
			case rlc.Present:
				fits, r = v != "", 500
			}
		}
		if !fits {
			return nil
		}
		ranks = append(ranks, r)
	}
	return ranks
}

func TestMatchAgreesWithTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := services().Draw(t, "service")
		m, problems := match.Compile(s)

		tie := false
		for request := range requests {
			best, caps := -1, []int(nil)
			var bestRank []int
			for i := range s.Buckets {
				b := &s.Buckets[i]
				r := rank(s, b, request)
				if r == nil {
					continue
				}
				if b.Role == rlc.CapRole {
					caps = append(caps, i)
					continue
				}
				for j := range i {
					if s.Buckets[j].Role != rlc.CapRole && slices.Equal(rank(s, &s.Buckets[j], request), r) {
						tie = true
					}
				}
				if best < 0 || slices.Compare(r, bestRank) < 0 {
					best, bestRank = i, r
				}
			}
			if m == nil {
				continue
			}
			got := m.Match(request)
			if got.Quota.Bucket != best {
				t.Fatalf("%v is charged to bucket %d, want %d", request, got.Quota.Bucket, best)
			}
			hits := got.Caps
			if got.Quota.Bucket >= 0 {
				hits = append(hits, got.Quota)
			}
			var gotCaps []int
			for _, h := range got.Caps {
				gotCaps = append(gotCaps, h.Bucket)
			}
			if !slices.Equal(gotCaps, caps) {
				t.Fatalf("%v is charged to caps %v, want %v", request, gotCaps, caps)
			}
			for _, h := range hits {
				b := &s.Buckets[h.Bucket]
				if len(h.Key) != len(b.Each) || (h.Key == nil) != (len(b.Each) == 0) {
					t.Fatalf("%v: key %v of a bucket that counts each %v", request, h.Key, b.Each)
				}
				for _, n := range b.Each {
					if h.Key[n] != request[n] || h.Key[n] == "" {
						t.Fatalf("%v: key %v", request, h.Key)
					}
				}
				if want := rlc.QuotaID(b.Name, h.Key); h.ID != want {
					t.Fatalf("id %q, want %q", h.ID, want)
				}
			}
		}
		if refused := len(problems) > 0; refused != tie || refused != (m == nil) {
			t.Fatalf("refused %v (%v), but a tie exists: %v", refused, problems, tie)
		}
	})
}

// What Uses does not name can be taken from a request, or be unknown to
// history, without moving the request into or out of the bucket.
func TestUsesNamesEveryAttributeThatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := services().Draw(t, "service")
		m, _ := match.Compile(s)
		if m == nil {
			t.Skip("tie")
		}
		charged := func(i int, request rlc.Attributes) bool {
			r := m.Match(request)
			return r.Quota.Bucket == i || slices.ContainsFunc(r.Caps, func(h match.Hit) bool { return h.Bucket == i })
		}
		for i := range s.Buckets {
			uses := m.Uses(i)
			for request := range requests {
				less := rlc.Attributes{}
				for _, n := range uses {
					less[n] = request[n]
				}
				if charged(i, request) != charged(i, less) {
					t.Fatalf("bucket %d uses %v, yet %v and %v differ", i, uses, request, less)
				}
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	each := service(bucket("callers", rlc.QuotaRole, "each:caller"), bucket("whole", rlc.CapRole, ""))
	exact := service(bucket("acme", rlc.QuotaRole, "caller=acme procedure=Create"), bucket("callers", rlc.QuotaRole, "each:caller"))
	many := func(pattern string, n int) *rlc.Service {
		var all []rlc.Bucket
		for i := range n {
			all = append(all, bucket(fmt.Sprintf("b%d", i), rlc.QuotaRole, fmt.Sprintf(pattern, i)))
		}
		return service(all...)
	}
	request := rlc.Attributes{"caller": "acme", "procedure": "Create"}
	for _, bm := range []struct {
		name string
		s    *rlc.Service
	}{
		{"each+cap", each},
		{"exact", exact},
		{"1000 exact callers", many("caller=c%d", 1000)},
		{"1000 prefixes", many("caller=c%d-*", 1000)},
		{"10000 prefixes", many("caller=c%d-*", 10000)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			m, problems := match.Compile(bm.s)
			if len(problems) > 0 {
				b.Fatal(problems[0])
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Match(request)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	// The worst case for ties: 1,000 buckets whose lists all meet in the caller
	// and none in the procedure.
	var all []rlc.Bucket
	for i := range 1000 {
		words := "caller=x|"
		for j := range 20 {
			words += fmt.Sprintf("c%d|", j)
		}
		words += fmt.Sprintf("y procedure=p%d|q%d", i, i)
		all = append(all, bucket(fmt.Sprintf("b%d", i), rlc.QuotaRole, words))
	}
	s := service(all...)
	for b.Loop() {
		if _, problems := match.Compile(s); len(problems) > 0 {
			b.Fatal(problems[0])
		}
	}
}
