package quotafile_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

const mebibyte = 1 << 20

// hostile are inputs of one mebibyte, each made to be costly in another part
// of the parser, as every kind of file.
func hostile() map[string]string {
	repeat := func(s string) string { return strings.Repeat(s, mebibyte/len(s)) }
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < mebibyte-100; i++ {
			fmt.Fprintf(&b, strings.ReplaceAll(format, "%d", "%[1]d"), i)
		}
		return b.String()
	}
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; bomb.Len() < mebibyte-200; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d]\n", i, i, i-1)
	}
	quotas := "apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: s\nquotas:\n"
	policy := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\nbuckets:\n"
	limited := "  - {name: b, limit: {rate: 1, burst: 1}}\n"
	var stairs strings.Builder
	for i := 0; stairs.Len() < mebibyte-2000; i++ {
		stairs.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	// within repeats a unit as often as the limit on items allows.
	within := func(unit string, items int) string { return strings.Repeat(unit, (30_000-10)/items) }
	return map[string]string{
		"within: commented keys":   within("# a\na: b\n", 7),
		"within: trailing comment": within("a: b # c\n", 6),
		"within: flow comments":    "[" + within("a, #\n", 6),
		"within: nested mappings":  within("a: {b: c}\n", 4),
		"within: flow pairs":       "[" + within("a: b,", 2),
		"within: flow items":       "[" + within("a,", 1),
		"within: flow keys":        "{" + within("a,", 1),
		"within: tags":             within("!!str a: !!str b\n", 2),
		"within: anchors":          within("- &a b\n", 2),
		"within: aliases":          "- &a b\n" + within("- *a\n", 2),
		"within: keys":             within("a: b\n", 2),
		"within: dashes":           within("-\n", 2),
		"within: nested dashes":    within("- - - - - - - - a\n", 9),
		"within: line separators":  within("-\u2028", 1),
		"within: carriage returns": within("-\r", 2),
		"within: complex keys":     within("? a\n", 2),
		"within: empty lists":      "[" + within("[],", 2),
		"within: bomb": func() string { // as deep as it gets, each a key of its own
			var b strings.Builder
			b.WriteString("a0: &a0 [x]\n")
			for i := 1; i < 30_000/12; i++ {
				fmt.Fprintf(&b, "a%d: &a%d [*a%[3]d,*a%[3]d,*a%[3]d,*a%[3]d,*a%[3]d,*a%[3]d,*a%[3]d,*a%[3]d]\n", i, i, i-1)
			}
			return b.String()
		}(),
		"generated lines in disorder": repeat("    rate: 1\n"),
		"generated keys":              quotas + numbered("    key: {a: b, c: d, e: f, g: h%d}\n"),
		"quotas but for one":          quotas + numbered("  - bucket: b%d\n    rate: 1\n    burst: 1\n    why: \"weekly peak 323/s × 1.30 headroom × 1.05 growth\"\n") + "  - bucket: b1\n    rate: 1\n    burst: .nan\n",
		"equal generated quotas":      quotas + repeat("  - bucket: b\n    rate: 1\n    burst: 1\n"),
		"flow sequences":              repeat("["),
		"flow mappings":               repeat("{"),
		"block sequences":             repeat("- "),
		"complex keys":                repeat("? "),
		"stairs":                      stairs.String(),
		"alias bomb":                  bomb.String(),
		"flow items":                  "[" + repeat("a,"),
		"flow pairs":                  "[" + repeat("a: b,"),
		"flow keys":                   "{" + repeat("a,"),
		"empty lists":                 "[" + repeat("[],"),
		"lines":                       repeat("-\n"),
		"comments":                    repeat("# a\na: b\n"),
		"keys":                        numbered("k%d: 1\n"),
		"long word":                   repeat("a"),
		"long string":                 `"` + repeat("a") + `"`,
		"escapes":                     `"` + repeat(`\x41`) + `"`,
		"open string":                 `"` + repeat("a"),
		"long key":                    repeat("a") + ": b",
		"long number":                 "a: " + repeat("9"),
		"block text":                  "a: |\n" + repeat("  x\n"),
		"documents":                   repeat("---\n"),
		"tags":                        repeat("!!str a: !!str b\n"),
		"blanks":                      repeat(" "),
		"newlines":                    repeat("\n"),
		"buckets":                     policy + repeat(limited),
		"unknown keys":                policy + limited + numbered("k%d: 1\n"),
		"long bucket name":            policy + "  - {name: " + repeat("a") + "}\n",
		"long list":                   policy + "  - {name: b, match: {caller: [" + numbered("c%d,") + "]}}\n",
		"equal quotas":                quotas + repeat("  - {bucket: b, rate: 1, burst: 1}\n"),
		"quotas without limit":        quotas + numbered("  - bucket: b%d\n    why: \"0123456789012345678901234567890123456789\"\n"),
		"quotas of nothing":           quotas + repeat("  - a\n"),
		"dense quotas":                quotas + "  - [" + repeat("a: b,     ") + "]\n",
		"tabs":                        repeat("\t"),
		"NUL":                         repeat("\x00"),
		"invalid UTF-8":               repeat("\xff"),
		"conflict markers":            repeat("<<<<<<< a\n"),
		"near conflict":               repeat("<<<<<<<a\n"),
	}
}

// asEvery gives the input as each kind of file that limits may differ for.
func asEvery(data string) rlc.Files {
	return rlc.Files{"services/s/policy.yaml": []byte(data)}
}

func asQuotas(data string) rlc.Files { return rlc.Files{"services/s/quotas.yaml": []byte(data)} }

func TestHostileFilesAreRefusedWithinTheirMemory(t *testing.T) {
	for name, data := range hostile() {
		for kind, files := range map[string]rlc.Files{"policy": asEvery(data), "quotas": asQuotas(data)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c := quotafile.Parse(files, nil)
			runtime.ReadMemStats(&after)
			if c.Valid() == nil || len(c.Services) > 0 || len(c.Broken["s"]) == 0 {
				t.Errorf("%s as %s: accepted", name, kind)
			}
			if len(c.Problems) > 102 {
				t.Errorf("%s as %s: %d problems", name, kind, len(c.Problems))
			}
			// Everything ever allocated, so the peak is lower still.
			if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 64 {
				t.Errorf("%s as %s: allocated %d MiB", name, kind, got)
			}
			for _, p := range c.Problems {
				if len(p.String()) > 1000 {
					t.Errorf("%s as %s: a message of %d bytes", name, kind, len(p.String()))
				}
			}
		}
	}
}

// cpu is the processor time that this process has used, collector included.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHostile shows the time that each refusal takes: the bar is 100 ms
// for a mebibyte. On a loaded two-core machine the dearest took 93 ms of
// processor time: 10,000 quotas of which the last is wrong. The dearest input
// made for the purpose took 51 ms.
func BenchmarkHostile(b *testing.B) {
	for name, data := range hostile() {
		for kind, files := range map[string]rlc.Files{"policy": asEvery(data), "quotas": asQuotas(data)} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				before := cpu(b)
				for b.Loop() {
					quotafile.Parse(files, nil)
				}
				b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// A full quotas.yaml is not hostile: the limits leave room for it.
func BenchmarkQuotas(b *testing.B) {
	quotas := make([]rlc.Quota, quotafile.MaxQuotas)
	for i := range quotas {
		quotas[i] = rlc.Quota{
			Bucket: "callers", Key: rlc.Key{"caller": fmt.Sprintf("caller-%d", i)},
			Limit: rlc.Limit{Rate: rlc.Rate(i + 1), Burst: rlc.Burst(2*i + 2)}, Why: "weekly peak 323/s × 1.30 headroom",
		}
	}
	data := quotafile.MarshalQuotas("checkout", quotas)
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, got, problems := quotafile.ParseQuotas("quotas.yaml", data); len(got) != len(quotas) {
				b.Fatal(problems)
			}
		}
	})
	b.Run("marshal", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			quotafile.MarshalQuotas("checkout", quotas)
		}
	})
}
