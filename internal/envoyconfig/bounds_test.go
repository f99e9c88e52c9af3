package envoyconfig

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// signs are n descriptors whose values make no word, so that all want one name.
func signs(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		value := strings.NewReplacer("0", "!", "1", "#", "2", "$", "3", "%", "4", "&", "5", "(", "6", ")", "7", "+", "8", "=", "9", "~").Replace(fmt.Sprint(i))
		fmt.Fprintf(&b, "- {key: k, value: \"%s\", rate_limit: {unit: day, requests_per_unit: 3}}\n", value)
	}
	return b.String()
}

// replaced are n descriptors of one name, and one that replaces it n times.
func replaced(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "- {key: k, value: v%d, rate_limit: {unit: day, requests_per_unit: 3, name: x}}\n", i)
	}
	b.WriteString("- {key: other, rate_limit: {unit: day, requests_per_unit: 3, replaces: [" + strings.Repeat("{name: x}, ", n) + "]}}\n")
	return b.String()
}

// work is what an import of a file allocates.
func work(t *testing.T, file string) (times, bytes uint64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, problems := Import("f.yaml", []byte(file))
	runtime.ReadMemStats(&after)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// Four times the rules are four times the work; at most six leaves room for
// maps that grow.
func TestTheWorkOfAnImportGrowsWithTheFile(t *testing.T) {
	for name, file := range map[string]func(int) string{"values that make one name": signs, "a name that is replaced": replaced} {
		times, bytes := work(t, file(maxRules/4))
		moreTimes, moreBytes := work(t, file(maxRules))
		if moreTimes > 6*times || moreBytes > 6*bytes {
			t.Errorf("%s: %d allocations of %d bytes for %d rules, %d of %d for %d", name, times, bytes, maxRules/4, moreTimes, moreBytes, maxRules)
		}
	}
}

func TestBucketsOfOneNameAreNumbered(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for _, v := range []string{"!", "2", "#", "$", "2!", "%"} {
		fmt.Fprintf(&b, "- {key: k, value: \"%s\", rate_limit: {unit: day, requests_per_unit: 3}}\n", v)
	}
	in, problems := Import("f.yaml", []byte(b.String()))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	svc, _, _ := parsed(t, in.Policy, nil)
	var got []string
	for _, bucket := range svc.Buckets {
		got = append(got, bucket.Name)
	}
	if want := "[k k-2 k-3 k-4 k-2-2 k-5]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestAnImportIsBounded(t *testing.T) {
	long := strings.Repeat("v", maxText)
	var nested strings.Builder // a small file whose policy would be large: each child has its parents' values
	nested.WriteString("domain: d\ndescriptors:\n")
	indent := ""
	for i := range maxDepth - 1 {
		fmt.Fprintf(&nested, "%s- key: k%d\n%s  value: %s\n%s  descriptors:\n", indent, i, indent, long, indent)
		indent += "  "
	}
	for i := range maxRules {
		fmt.Fprintf(&nested, "%s- {key: z, value: c%d, rate_limit: {unit: day, requests_per_unit: 3}}\n", indent, i)
	}
	for name, c := range map[string]struct {
		in    string
		first string
		count int
		last  string
	}{
		"too many rules":        {signs(maxRules + 5), `f.yaml:1003:3: more than 1000 descriptors with a limit: a service has at most as many buckets`, 1, ""},
		"too many problems":     {"domain: d\ndescriptors:\n" + strings.Repeat("- {key: k}\n", 12_000), `f.yaml:4:3: key "k" with value "" stands twice`, MaxProblems + 1, "f.yaml:1:1: and 11949 more problems"},
		"a long value":          {"domain: d\ndescriptors:\n- {key: k, value: " + long + "v}\n", "f.yaml:3:19: value is longer than 1024 bytes", 1, ""},
		"a long key":            {"domain: d\ndescriptors:\n- {key: " + long + "v}\n", "f.yaml:3:9: key is longer than 1024 bytes", 1, ""},
		"a policy far too long": {nested.String(), "from this descriptor on", 1, ""},
	} {
		in, problems := Import("f.yaml", []byte(c.in))
		if len(problems) != c.count || len(in.Policy) > 0 || !strings.Contains(problems[0].String(), c.first) || !strings.HasPrefix(problems[c.count-1].String(), c.last) {
			t.Errorf("%s: %d problems, policy %.40q: %v", name, len(problems), in.Policy, problems[:min(len(problems), 2)])
		}
	}
	if in, problems := Import("f.yaml", []byte(signs(maxRules))); len(problems) > 0 || strings.Count(string(in.Policy), "\n  - {name: ") != maxRules {
		t.Errorf("%d rules: %v", maxRules, problems)
	}
	in, _ := Import("f.yaml", []byte("domain: d\ndescriptors:\n- key: K k\n  value: "+long+"\n  detailed_metric: true\n  rate_limit: {unit: day, requests_per_unit: 3}\n- {key: K k}\n"))
	for _, l := range in.Losses {
		if len(l.Text) > 2*maxPlace {
			t.Errorf("a loss of %d bytes: %s", len(l.Text), l)
		}
	}
	if n := len(kinds(in.Losses, "descriptor")); n != 1 {
		t.Errorf("a key that is no attribute's name is told %d times: %v", n, in.Losses)
	}
}

func kinds(all []Loss, kind string) (of []Loss) {
	for _, l := range all {
		if l.Kind == kind {
			of = append(of, l)
		}
	}
	return of
}

// What ties two sequences of keys is a rule that replaces another, not a name
// that both only have or only replace.
func TestReplacingTiesGroups(t *testing.T) {
	at := func(key, name string, replaces ...string) rule {
		return rule{path: []entry{{key: key}}, name: name, replaces: replaces}
	}
	for name, c := range map[string]struct {
		rules []rule
		want  string
	}{
		"no rules":              {nil, "map[:true]"},
		"nothing replaces":      {[]rule{at("a", "x"), at("b", "x")}, "map[a:true]"},
		"nothing is named":      {[]rule{at("a", "", "x"), at("b", "", "x")}, "map[a:true]"},
		"one replaces":          {[]rule{at("a", "x"), at("b", "", "x"), at("c", "")}, "map[a:true b:true]"},
		"over another":          {[]rule{at("a", "x"), at("b", "y", "x"), at("c", "", "y")}, "map[a:true b:true c:true]"},
		"the most of all":       {[]rule{at("a", ""), at("b", ""), at("b", "")}, "map[b:true]"},
		"tied, but not to most": {[]rule{at("a", ""), at("b", "x"), at("c", "", "x")}, "map[a:true]"},
	} {
		if got := fmt.Sprint(quotaGroups(c.rules)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
