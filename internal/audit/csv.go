package audit

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
)

// Limits are the limits of one service as a file tells them.
type Limits struct {
	Service *rlc.Service
	Quotas  []rlc.Quota
}

// ReadCSV reads limits as service,caller,procedure,rate,burst under that header,
// sorted by service. An empty caller or procedure, or a *, is any; of several
// lines that a request fits the most specific counts, the caller first. An empty
// burst is twice the rate. An error wraps rlc.ErrInvalid and names its line.
func ReadCSV(in io.Reader) ([]Limits, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = 5
	header, err := r.Read()
	if err != nil || strings.Join(header, ",") != "service,caller,procedure,rate,burst" {
		return nil, fmt.Errorf("%w: line 1: want the header service,caller,procedure,rate,burst", rlc.ErrInvalid)
	}
	all := map[string][]limitLine{}
	seen := map[string]int{}
	n := 0
	for {
		fields, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
		}
		line, _ := r.FieldPos(0)
		if n++; n > MaxRows {
			return nil, fmt.Errorf("%w: line %d: more than %d limits; audit a part of them at a time", rlc.ErrInvalid, line, MaxRows)
		}
		l, err := parseLine(fields)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", rlc.ErrInvalid, line, err)
		}
		id := strings.Join([]string{fields[0], l.key.String()}, "\x00")
		if was := seen[id]; was > 0 {
			return nil, fmt.Errorf("%w: line %d: the same service, caller and procedure as line %d", rlc.ErrInvalid, line, was)
		}
		seen[id] = line
		all[fields[0]] = append(all[fields[0]], l)
	}
	var out []Limits
	for name, lines := range all {
		out = append(out, serviceOf(name, lines))
	}
	slices.SortFunc(out, func(a, b Limits) int { return strings.Compare(a.Service.Name, b.Service.Name) })
	return out, nil
}

// limitLine is one limit: its key holds what it names.
type limitLine struct {
	key   rlc.Key
	limit rlc.Limit
}

func parseLine(f []string) (l limitLine, err error) {
	if f[0] == "" {
		return l, fmt.Errorf("no service")
	}
	l.key = rlc.Key{}
	for i, a := range []string{"caller", "procedure"} {
		if v := f[1+i]; v != "" && v != "*" {
			l.key[a] = v
		}
	}
	rate, err := strconv.ParseFloat(f[3], 64)
	if err != nil {
		return l, fmt.Errorf("rate %q is no number", f[3])
	}
	l.limit.Rate = rlc.Rate(rate)
	if f[4] == "" {
		l.limit.Burst = rlc.Burst(min(max(1, math.Ceil(2*rate)), math.MaxInt32))
	} else if n, err := strconv.ParseInt(f[4], 10, 64); err == nil {
		l.limit.Burst = rlc.Burst(n)
	} else {
		return l, fmt.Errorf("burst %q is no whole number", f[4])
	}
	return l, l.limit.Valid()
}

// serviceOf makes buckets of lines: one that counts each value where all lines
// name the same attributes, else one for each line.
func serviceOf(name string, lines []limitLine) Limits {
	out := Limits{Service: &rlc.Service{Name: name, Mode: rlc.Enforce}}
	each := names(lines[0].key)
	same := !slices.ContainsFunc(lines, func(l limitLine) bool { return !slices.Equal(names(l.key), each) })
	add := func(b rlc.Bucket) {
		b.Role, b.Mode, b.Algorithm, b.Scope = rlc.QuotaRole, rlc.Enforce, rlc.TokenBucket, rlc.ScopeGlobal
		out.Service.Buckets = append(out.Service.Buckets, b)
	}
	if same {
		bucket := strings.Join(append([]string{"each"}, each...), "-")
		if len(each) == 0 {
			bucket = "service"
		}
		add(rlc.Bucket{Name: bucket, Each: each, Policy: &rlc.PolicySpec{Kind: "historical"}})
		for _, l := range lines {
			q := rlc.Quota{Bucket: bucket, Limit: l.limit}
			if len(each) > 0 {
				q.Key = l.key
			}
			out.Quotas = append(out.Quotas, q)
		}
		return out
	}
	for _, l := range lines {
		b := rlc.Bucket{Name: l.key.String(), Match: map[string]rlc.Pattern{}, Limit: &l.limit}
		if b.Name == "" {
			b.Name = "service"
		}
		for a, v := range l.key {
			b.Match[a] = rlc.Pattern{Kind: rlc.Exact, Values: []string{v}}
		}
		add(b)
	}
	return out
}

// names are a key's attributes in matching order.
func names(k rlc.Key) []string {
	var all []string
	for _, a := range []string{"caller", "procedure"} {
		if _, ok := k[a]; ok {
			all = append(all, a)
		}
	}
	return all
}
