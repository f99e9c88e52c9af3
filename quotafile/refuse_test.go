package quotafile_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

const (
	policyHead = "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\n"
	quotasHead = "apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: s\nquotas:\n"
)

// errorsIn parses a policy of service s and returns the errors without the
// file's name.
func errorsIn(policy string) []string {
	c := quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(policy)}, nil)
	var all []string
	for _, p := range c.Problems {
		if !p.Warning {
			all = append(all, strings.TrimPrefix(p.String(), "services/s/policy.yaml:"))
		}
	}
	return all
}

func TestBytesThatMustNotReachTheParserAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"empty":           {"", "1:1: the file is empty; an empty file is never an empty configuration: remove it instead"},
		"blank":           {" \n\n", "1:1: the file is empty; an empty file is never an empty configuration: remove it instead"},
		"comment only":    {"# nothing\n", "1:1: the file holds only comments; an empty file is never an empty configuration: remove it instead"},
		"dashes only":     {"---\n", "1:1: the document is empty; an empty file is never an empty configuration: remove it instead"},
		"BOM":             {"\xef\xbb\xbf" + policyHead, "1:1: the file starts with a byte order mark; save as UTF-8 without BOM"},
		"UTF-16":          {"\xff\xfea\x00", "1:1: the file is UTF-16; save as UTF-8"},
		"NUL":             {"a: é\x00\n", "1:5: the file contains a NUL byte"},
		"invalid UTF-8":   {"a: b\nc: é\xff\n", "2:5: the file is not valid UTF-8; save as UTF-8"},
		"tab":             {"a:\n\tb: c\n", `2:1: the file contains a tab; indent with spaces; write \t in double quotes for a tab in a value`},
		"conflict":        {"a: b\n<<<<<<< HEAD\nc: d\n=======\n>>>>>>> x\n", "2:1: the file contains a conflict marker; resolve the merge conflict"},
		"conflict middle": {"a: b\n=======\n", "2:1: the file contains a conflict marker; resolve the merge conflict"},
		"too large":       {strings.Repeat("# 345678\n", 1<<20/9+1), "1:1: the file is larger than 1 MiB; split the service, or narrow what generates the file"},
		"too many items":  {"a: [" + strings.Repeat("b,", 30_001) + "b]", "1:1: the file has more than 30000 keys, list items and lines"},
		"second document": {policyHead + "buckets: [{name: b}]\n---\na: b\n", "5:1: the file holds a second document; one file holds one document: remove what follows ---"},
		"syntax":          {"a: b\n  c: d\n", "2:3: not valid YAML: mapping values are not allowed in this context"},
		"not a mapping":   {"- a\n", "1:1: the file: want keys and values"},
	} {
		if got := errorsIn(tc.data); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestAllFaultsOfTheBytesAreToldAtOnce(t *testing.T) {
	got := errorsIn("a:\tb\x00\n>>>>>>> x\n")
	if len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

func TestPoliciesAreStrict(t *testing.T) {
	bucket := policyHead + "buckets:\n  - name: b\n"
	for name, tc := range map[string]struct{ data, want string }{
		"anchor":               {policyHead + "buckets:\n  - &a {name: b}\n", "5:5: anchor &a: anchors are not read; write the value out"},
		"alias":                {policyHead + "buckets:\n  - {name: &a b}\n  - {name: *a}\n", "5:12: anchor &a: anchors are not read; write the value out|6:12: alias *a: aliases are not read; write the value out"},
		"merge key":            {bucket + "    <<: {role: cap}\n", "6:5: merge key <<: merge keys are not read; write the keys out"},
		"tag":                  {policyHead + "buckets:\n  - name: !!str b\n", "5:11: tag !!str: tags are not read; remove it"},
		"duplicate key":        {bucket + "    role: cap\n    role: cap\n", `7:5: key "role" is given twice: first at line 6; remove one`},
		"duplicate of many":    {policyHead + "buckets: [{name: b}]\nowners: [x]\nprofile: rlc\ntimezone: UTC\nquotas: {max: 1}\nseries: {max: 1}\nunmatched: admit\nauto_merge: false\nowners: [x]\n", `12:1: key "owners" is given twice: first at line 5; remove one`},
		"unknown key":          {bucket + "    polcy: {kind: historical}\n", `6:5: unknown key "polcy" in bucket; did you mean policy?`},
		"unknown top key":      {policyHead + "buckets: [{name: b}]\nbukets: 1\n", `5:1: unknown key "bukets" in the file; did you mean buckets?`},
		"numeric key":          {bucket + "    1: x\n", `6:5: key "1": a key must be a word; put it in quotes`},
		"complex key":          {policyHead + "buckets:\n  - {name: b, ? [a] : c}\n", "5:17: a key must be a word"},
		"blank":                {bucket + "    limit:\n", "6:11: limit is blank; give it a value, or remove the key"},
		"tilde":                {bucket + "    limit: ~\n", "6:12: limit is blank; give it a value, or remove the key"},
		"empty string":         {bucket + "    role: \"\"\n", "6:11: role is empty; give it a value, or remove the key"},
		"deep":                 {policyHead + "buckets: " + strings.Repeat("[", 20) + strings.Repeat("]", 20) + "\n", "4:25: nested deeper than 16 levels"},
		"limit and policy":     {bucket + "    limit: {rate: 1, burst: 1}\n    policy: {kind: historical}\n", "7:13: limit excludes policy; remove one of the two"},
		"limit and new_key":    {bucket + "    each: [caller]\n    limit: {rate: 1, burst: 1}\n    new_key: {admit: true}\n", "8:14: new_key beside limit; limit already is each key's own"},
		"new_key alone":        {bucket + "    new_key: {admit: true}\n", "6:14: new_key without each; add each, or remove it"},
		"new_key admits not":   {bucket + "    each: [caller]\n    new_key: {admit: false}\n", "7:22: admit can only be true; write admit: true, or limit: {rate, burst}"},
		"new_key both":         {bucket + "    each: [caller]\n    new_key: {admit: true, limit: {rate: 1, burst: 1}}\n", "7:35: admit excludes limit; remove one of the two"},
		"guards and limit":     {bucket + "    limit: {rate: 1, burst: 1}\n    guards: {floor: 5}\n", "7:13: guards beside limit: a limit written by hand is never moved; remove it"},
		"guard of zero":        {bucket + "    guards: {step_down: 0}\n", "6:25: guards step_down: 0 is outside 0.001 to 1"},
		"no kind":              {bucket + "    policy: {headroom: 0.3}\n", "6:13: policy lacks the key kind"},
		"missing contract":     {bucket + "    policy: {kind: contractual, contract: x}\n", `6:43: there is no contract "x"; add contracts/x.yaml`},
		"missing profile":      {policyHead + "profile: x\nbuckets: [{name: b}]\n", `4:10: there is no profile "x"; add profiles/x.yaml, or use one of envoy, grpc, http, istio, rlc`},
		"role":                 {bucket + "    role: rule\n", `6:11: role: "rule" is not known; one of quota, cap`},
		"mode":                 {bucket + "    mode: off\n", `6:11: mode: "off" is not known; one of shadow, enforce`},
		"algorithm unknown":    {bucket + "    algorithm: leaky\n", `6:16: algorithm: "leaky" is not known; one of token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_log, concurrency, drop_ratio`},
		"shape of what is not": {bucket + "    tier: [a]\n", "6:11: tier: want keys and values"},
		"typo in what is not":  {bucket + "    rollout: {zone: [a]}\n", `6:14: rollout lacks the key zones|6:15: unknown key "zone" in rollout; did you mean zones?`},
		"star inside":          {bucket + "    match: {caller: a*b}\n", `6:21: caller: "a*b" is not a pattern; a star may only end a pattern`},
		"star in list":         {bucket + "    match: {caller: [\"a*\"]}\n", `6:22: caller: "a*" in a list; a list holds exact values; write a bucket of its own for the rest`},
		"empty pattern":        {bucket + "    match: {caller: \"\"}\n", "6:21: caller is empty; write absent for requests without it"},
		"numeric pattern":      {bucket + "    match: {caller: 12}\n", `6:21: caller: "12" is not a string; put it in quotes`},
		"empty match":          {bucket + "    match: {}\n", "6:12: match is empty; leave match out to match everything"},
		"empty list":           {bucket + "    match: {caller: []}\n", "6:21: caller is an empty list"},
		"twice in a list":      {bucket + "    match: {caller: [a, a]}\n", `6:25: caller lists "a" twice; remove one`},
		"each absent":          {bucket + "    each: [caller]\n    match: {caller: absent}\n", "7:21: each caller: a request without it has no value to count by"},
		"attribute":            {bucket + "    each: [\"a b\"]\n", `6:12: "a b" is not an attribute's name; use up to 63 letters, digits, dots, dashes and underscores, a letter or underscore first`},
		"bucket twice":         {bucket + "    match: {caller: a}\n  - {name: b}\n", `7:5: bucket "b" is defined twice: first at line 5; give it another name`},
		"tie":                  {bucket + "  - name: c\n", `6:5: bucket "c" ties with bucket "b" (line 5): both match the same requests with the same specificity; make one match more specific, or give one role: cap`},
		"no buckets":           {policyHead + "buckets: []\n", "4:10: buckets is an empty list; a service without limits has no policy.yaml"},
		"buckets missing":      {policyHead, "1:1: the file lacks the key buckets"},
		"bucket name":          {policyHead + "buckets: [{name: a/b}]\n", `4:18: bucket name: "a/b" is not a name; use up to 63 letters, digits, dots, dashes and underscores, a letter or digit first`},
		"wrong kind":           {strings.Replace(bucket, "ServicePolicy", "Contract", 1), `2:7: kind is "Contract", but this place holds a ServicePolicy; write ServicePolicy`},
		"newer version":        {strings.Replace(bucket, "rlc/v1", "rlc/v2", 1) + "    new: x\n", `1:13: needs a newer rlc: apiVersion is "rlc/v2"; this version reads rlc/v1`},
		"no version":           {"kind: ServicePolicy\nservice: s\nbuckets: [{name: b}]\n", "1:1: the file lacks the key apiVersion"},
		"folder":               {strings.Replace(bucket, "service: s", "service: T", 1), `3:10: service "T" does not belong in folder "s"; its folder is services/_t-e632b7095b0b`},
		"time zone":            {policyHead + "timezone: Mars/Phobos\nbuckets: [{name: b}]\n", `4:11: timezone: "Mars/Phobos" is not known; write an IANA name such as Europe/Paris`},
		"local time":           {policyHead + "timezone: Local\nbuckets: [{name: b}]\n", `4:11: timezone: "Local" is not known; write an IANA name such as Europe/Paris`},
		"exclude backwards":    {policyHead + "buckets: [{name: b}]\nexclude: [{from: 2026-01-02T00:00:00Z, until: 2026-01-02T00:00:00Z}]\n", "5:47: until is not after from"},
		"exclude without end":  {policyHead + "buckets: [{name: b}]\nexclude: [{from: 2026-01-02}]\n", `5:11: exclude lacks the key until|5:18: from: "2026-01-02" is not a time; write it as 2026-11-27T00:00:00Z`},
		"unmatched":            {policyHead + "buckets: [{name: b}]\nunmatched: drop\n", `5:12: unmatched: "drop" is not known; write admit, or {mode, limit}`},
		"owners":               {policyHead + "buckets: [{name: b}]\nowners: team\n", "5:9: owners: want a list; write [team]"},
		"quotas max":           {policyHead + "buckets: [{name: b}]\nquotas: {max: 20001}\n", "5:15: quotas max: 20001 is outside 1 to 20000"},
	} {
		if got := strings.Join(errorsIn(tc.data), "|"); got != tc.want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", name, got, tc.want)
		}
	}
}

// Every spelling that some reader of YAML takes for another number than the
// next one does, or for none.
func TestNumbersArePlainDecimals(t *testing.T) {
	for _, text := range []string{
		"", "~", "null", ".nan", ".NaN", ".inf", "-.inf", "-5", "-0", "+5", "0100", "00", "1_000", "1:30", "1e400", "1e3", "1E3", "0x1f", "0o17", "0b1",
		".5", "5.", "1.2.3", "99999999999999999999", "100000000001", `"420"`, "'420'", "true", "abc", "[1]", "{a: 1}", "1,000", "1 000", "２", "٣",
		"2026-11-27", "0." + strings.Repeat("0", 400) + "1", strings.Repeat("9", 400), "-1e-400", "0", "0.0",
	} {
		data := quotasHead + "  - bucket: b\n    rate: " + text + "\n    burst: 1\n"
		if _, quotas, problems := quotafile.ParseQuotas("q.yaml", []byte(data)); quotas != nil || len(problems) == 0 {
			t.Errorf("rate %q: accepted as %v", text, quotas)
		}
		data = quotasHead + "  - bucket: b\n    rate: 1\n    burst: " + text + "\n"
		if _, quotas, problems := quotafile.ParseQuotas("q.yaml", []byte(data)); quotas != nil || len(problems) == 0 {
			t.Errorf("burst %q: accepted as %v", text, quotas)
		}
	}
	for text, want := range map[string]rlc.Rate{"420": 420, "61.3": 61.3, "0.02": 0.02, "100000000000": 1e11, "1.50": 1.5} {
		_, quotas, problems := quotafile.ParseQuotas("q.yaml", []byte(quotasHead+"  - bucket: b\n    rate: "+text+"\n    burst: 1\n"))
		if len(problems) > 0 || quotas[0].Rate != want {
			t.Errorf("rate %q: %v %v", text, quotas, lines(problems))
		}
	}
}

func TestAnAttributeThatTheProfileLacksIsWarnedOf(t *testing.T) {
	bucket := policyHead + "buckets:\n  - name: b\n"
	for name, tc := range map[string]struct{ data, want string }{
		"nearly one of it": {bucket + "    role: cap\n    match: {procdure: x}\n    limit: {rate: 1, burst: 1}\n", `7:23: warning: bucket "b": profile rlc has no attribute "procdure"; did you mean procedure? If requests do carry it, add it to the profile's attributes`},
		"by policy":        {bucket + "    each: [caler]\n", `6:12: warning: bucket "b": profile rlc has no attribute "caler", so no quota can be computed; did you mean caller? If requests do carry it, add it to the profile's attributes`},
		"another word":     {bucket + "    each: [api_key]\n", `6:12: warning: bucket "b": profile rlc has no attribute "api_key", so no quota can be computed; it has caller, procedure`},
		"by hand":          {bucket + "    role: cap\n    match: {api_key: x}\n    limit: {rate: 1, burst: 1}\n", ""},
	} {
		problems := quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(tc.data)}, nil).Problems
		if got := strings.Join(lines(problems), "|"); !strings.Contains(got, tc.want) || strings.Contains(got, "api_key") != strings.Contains(tc.want, "api_key") {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestNoServiceIsNamedLikeAllOrLikeAFolder(t *testing.T) {
	for _, name := range []string{"*", ".", ".."} {
		data := strings.Replace(policyHead, "service: s", "service: \""+name+"\"", 1) + "buckets: [{name: b}]\n"
		got := lines(quotafile.Parse(rlc.Files{"services/" + quotafile.PathSegment(name) + "/policy.yaml": []byte(data)}, nil).Problems)
		if len(got) == 0 || !strings.Contains(got[0], ":3:10: a service cannot be named \""+name+"\"") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestZeroIsBothOrNeither(t *testing.T) {
	for text, ok := range map[string]bool{
		"rate: 0\n    burst: 0": true, "rate: 0\n    burst: 1": false, "rate: 1\n    burst: 0": false, "rate: 1\n    burst: 0.5": false, "rate: 1\n    burst: 1.0": false,
	} {
		_, quotas, problems := quotafile.ParseQuotas("q.yaml", []byte(quotasHead+"  - bucket: b\n    "+text+"\n"))
		if accepted := len(problems) == 0; accepted != ok || accepted != (len(quotas) == 1) {
			t.Errorf("%q: accepted %v", text, accepted)
		}
	}
}

func TestQuotasAreStrict(t *testing.T) {
	quota := quotasHead + "  - bucket: b\n    rate: 1\n    burst: 1\n"
	for name, tc := range map[string]struct{ data, want string }{
		"enforce":     {quota + "    mode: enforce\n", "q:8:11: a quota's mode only softens: it can be shadow; set the bucket's mode in policy.yaml"},
		"twice":       {quota + "  - bucket: b\n    rate: 2\n    burst: 2\n", `q:8:5: quota "b" is given twice: first at line 5; remove one`},
		"empty key":   {quota + "    key: {}\n", "q:8:10: key is empty; leave it out for a bucket without each"},
		"empty value": {quota + "    key: {caller: \"\"}\n", "q:8:19: caller is empty; give it a value, or remove the key"},
		"long value":  {quota + "    key: {caller: " + strings.Repeat("a", 1025) + "}\n", "q:8:19: caller is longer than 1024 bytes"},
		"unknown":     {quota + "    burts: 3\n", `q:8:5: unknown key "burts" in quota; did you mean burst?`},
		"blank list":  {"apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: s\nquotas:\n", "q:4:8: quotas is blank; give it a value, or remove the key"},
		"no list":     {"apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: s\n", "q:1:1: the file lacks the key quotas"},
		"all at once": {quotasHead + "  - {bucket: b, rate: -1, burst: 1}\n  - {bucket: c, rate: 1}\n  - {bucket: d, rate: 1, burst: x}\n",
			`q:5:23: rate: "-1" is not a plain decimal number; write a plain decimal such as 1500 or 0.5|q:6:5: quota lacks the key burst|q:7:33: burst: "x" is not a plain decimal number; write a plain decimal such as 1500 or 0.5`},
	} {
		_, quotas, problems := quotafile.ParseQuotas("q", []byte(tc.data))
		if got := strings.Join(lines(problems), "|"); got != tc.want || quotas != nil {
			t.Errorf("%s: got\n  %s\nwant\n  %s\n  quotas %v", name, got, tc.want, quotas)
		}
	}
	_, quotas, problems := quotafile.ParseQuotas("q", []byte(strings.Replace(quotasHead, "quotas:", "quotas: []", 1)))
	if len(problems) > 0 || quotas == nil || len(quotas) != 0 {
		t.Errorf("an explicit empty list: %v %v", quotas, lines(problems))
	}
}

func TestTooManyQuotasAreRefusedByName(t *testing.T) {
	quotas := make([]rlc.Quota, quotafile.MaxQuotas+1)
	for i := range quotas {
		quotas[i] = rlc.Quota{Bucket: "b", Key: rlc.Key{"caller": "c" + string(rune('a'+i%26)) + strings.Repeat("x", i/26%50) + string(rune('a'+i/1300))}, Limit: rlc.Limit{Rate: 1, Burst: 1}}
	}
	_, got, problems := quotafile.ParseQuotas("q", quotafile.MarshalQuotas("s", quotas))
	if got != nil || len(problems) != 1 || problems[0].Message != "more than 20000 quotas" {
		t.Errorf("%d quotas, %v", len(got), lines(problems))
	}
}

func TestProblemsOfOneFileAreBounded(t *testing.T) {
	got := errorsIn(policyHead + "buckets:\n" + strings.Repeat("  - {nam: b}\n", 500))
	if len(got) != 101 || !strings.Contains(got[100], "more than 100 problems in this file") {
		t.Errorf("%d problems, the last %q", len(got), got[len(got)-1])
	}
}

func TestProfilesAreStrict(t *testing.T) {
	const head = "apiVersion: rlc/v1\nkind: Profile\nname: p\n"
	const attributes = "attributes: {caller: {metric: c}}\n"
	const history = "history: {sources: ['x{s=\"${service}\"}']}\n"
	for name, tc := range map[string]struct{ data, want string }{
		"stem":        {strings.Replace(head, "name: p", "name: q", 1) + attributes + history, `3:7: name is "q", but the file is "p.yaml"`},
		"no source":   {head + attributes + "history: {sources: []}\n", "5:20: sources is an empty list"},
		"placeholder": {head + attributes + "history: {sources: ['x{s=\"${service}\",c=\"${caller}\"}']}\n", `5:21: source: unknown placeholder ${caller}; the only placeholder is ${service}`},
		"label":       {head + "attributes: {caller: {metric: a-b}}\n" + history, `4:31: "a-b" is not the name of a metric's label`},
		"nothing":     {head + "attributes: {caller: {}}\n" + history, `4:22: attribute "caller" has no source; write metric, descriptor or both`},
		"join":        {head + "attributes: {caller: {metric: [a], join: \"/\"}}\n" + history, "4:42: join without anything to join; list two labels or more in metric"},
		"unknown":     {head + attributes + "unknown: {zone: [\"\"]}\n" + history, `5:11: unknown names "zone", which is no attribute of this profile`},
		"step":        {head + attributes + "history: {step: 7m, sources: ['x{s=\"${service}\"}']}\n", "5:17: step must be 1s to 1h and divide an hour; as 15s, 30s, 1m or 5m"},
		"no unit":     {head + attributes + "history: {step: 60, sources: ['x{s=\"${service}\"}']}\n", `5:17: step: "60" is not a duration; write a number and a unit (ms, s, m, h, d, w), as 90s or 7d`},
		"no history":  {head + attributes, "1:1: the file lacks the key history"},
	} {
		c := quotafile.Parse(rlc.Files{"profiles/p.yaml": []byte(tc.data)}, nil)
		if got := strings.ReplaceAll(strings.Join(lines(c.Problems), "|"), "profiles/p.yaml:", ""); got != tc.want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", name, got, tc.want)
		}
		if c.Profiles["p"] != nil {
			t.Errorf("%s: kept", name)
		}
	}
	c := quotafile.Parse(rlc.Files{"profiles/p.yaml": []byte(head + "attributes:\n  caller: {metric: [ns, app], join: \"-\", descriptor: who}\n  key: {descriptor: api_key}\n" + history)}, nil)
	want := map[string]rlc.AttributeSource{
		"caller": {Metric: []string{"ns", "app"}, Join: "-", Descriptor: "who"},
		"key":    {Join: "/", Descriptor: "api_key"},
	}
	if got := c.Profiles["p"]; got == nil || !reflect.DeepEqual(got.Attributes, want) {
		t.Errorf("got %+v, want %+v, %v", got, want, lines(c.Problems))
	}
}

func TestContractsAreStrict(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"stem":      {strings.Replace(acme, "name: acme-2026", "name: other", 1), `3:7: name is "other", but the file is "acme-2026.yaml"`},
		"caller":    {strings.Replace(acme, "caller: acme\n", "", 1), "1:1: the file lacks the key caller"},
		"backwards": {acme + "from: 2027-01-01T00:00:00Z\nuntil: 2026-01-01T00:00:00Z\n", "8:8: until is not after from"},
		"burst":     {strings.Replace(acme, "burst: 200", "burst: 0", 1), "5:7: rate 100 beside burst 0: both must be above 0; to admit nothing write 0 for both"},
	} {
		c := quotafile.Parse(rlc.Files{"contracts/acme-2026.yaml": []byte(tc.data)}, nil)
		if got := strings.ReplaceAll(strings.Join(lines(c.Problems), "|"), "contracts/acme-2026.yaml:", ""); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		if len(c.Contracts) != 0 {
			t.Errorf("%s: kept", name)
		}
	}
}

// D14. A foreign tree may hold folders that some file systems take for each other
// or for devices: none is the folder of the service that it names.
func TestAFolderThatAFileSystemConfusesBelongsToNoService(t *testing.T) {
	for _, name := range []string{"git~1", "CON", "Checkout", "caf\u00e9", "cafe\u0301"} {
		text := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: \"" + name + "\"\nowners: [a]\nbuckets:\n  - {name: all, limit: {rate: 1, burst: 1}}\n"
		got := lines(quotafile.Parse(rlc.Files{"services/" + name + "/policy.yaml": []byte(text)}, nil).Problems)
		if !strings.Contains(strings.Join(got, "\n"), "does not belong in folder") {
			t.Errorf("%q: %q", name, got)
		}
	}
}
