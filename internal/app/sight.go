package app

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promhistory"
)

// Sighted is what a history source tells of a service that has no policy.
type Sighted struct {
	Name   string
	Each   string // the attribute that its bucket should count by; "" for one counter
	Why    string
	Rate   rlc.Rate // mean of the last day
	Doubts []string // why a person should look; nil: sure
}

// lookback is how much history a first limit is made of.
const lookback = 28 * 24 * time.Hour

func (s Sighted) bucket() string {
	if s.Each == "" {
		return "all"
	}
	return s.Each + "s"
}

// sightRequest asks for the history of a service that has no policy.
func sightRequest(p *rlc.Profile, name, bucket string, now time.Time, each ...string) rlc.HistoryRequest {
	b := rlc.Bucket{Name: bucket, Role: rlc.QuotaRole, Each: each, Mode: rlc.Shadow, Algorithm: rlc.TokenBucket, Policy: &rlc.PolicySpec{Kind: "historical"}, Guards: rlc.DefaultGuards()}
	svc := &rlc.Service{Name: name, Mode: rlc.Shadow, MaxQuotas: 2000, Unknown: p.Unknown, Buckets: []rlc.Bucket{b}}
	return rlc.HistoryRequest{Service: svc, Profile: p, Lookback: lookback, Now: now}
}

// Sight looks at the last day of a service's traffic: rlc init and the page
// that onboards a service suggest from it.
func Sight(ctx context.Context, history *promhistory.Reader, p *rlc.Profile, name string, now time.Time) (Sighted, error) {
	flows, err := history.Flows(ctx, sightRequest(p, name, "all", now), 24*time.Hour)
	if err != nil {
		return Sighted{}, err
	}
	one := Sighted{Name: name}
	for _, f := range flows {
		one.Rate += f.Rate
	}
	one.Each, one.Why = explains(flows, p.Unknown)
	findings, err := history.Diagnose(ctx, sightRequest(p, name, one.bucket(), now, one.each()...))
	if err != nil {
		return Sighted{}, err
	}
	for _, f := range findings {
		if f.Level != promhistory.OK && f.Check != "rule" {
			one.Doubts = append(one.Doubts, f.Text)
		}
	}
	return one, nil
}

func (s Sighted) each() []string {
	if s.Each == "" {
		return nil
	}
	return []string{s.Each}
}

// explains picks the attribute that a service's quotas should count by. Each
// tells apart two requests picked at random with the probability 1 − Σ share²;
// what has no value is one share. Callers are preferred: a procedure's quota
// lets one caller take it from the others, so that procedures must tell apart a
// quarter more.
func explains(flows []promhistory.Flow, unknown map[string][]string) (each, why string) {
	apart, values := map[string]float64{}, map[string]int{}
	for _, a := range []string{"caller", "procedure"} {
		shares, total := map[string]float64{}, 0.0
		for _, f := range flows {
			v := f.Attributes[a]
			if slices.Contains(unknown[a], v) || promhistory.Folded(v) {
				v = ""
			}
			shares[v] += float64(f.Rate)
			total += float64(f.Rate)
		}
		same := 0.0
		for v, rate := range shares {
			if total > 0 {
				same += rate / total * rate / total
			}
			if v != "" {
				values[a]++
			}
		}
		apart[a] = 1 - same
	}
	switch {
	case values["caller"] == 0 && values["procedure"] == 0:
		return "", "its metrics name neither callers nor procedures"
	case values["caller"] == 0 || values["procedure"] > 0 && apart["procedure"] > apart["caller"]+0.25:
		return "procedure", fmt.Sprintf("%s tell more apart than %s", rlc.Plural(values["procedure"], "procedure"), rlc.Plural(values["caller"], "caller"))
	}
	return "caller", rlc.Plural(values["caller"], "caller")
}

// Policy is a first policy.yaml, all in shadow. Owners may be nil.
func (s Sighted) Policy(profile string, owners []string) []byte {
	bucket := "{name: all}"
	if s.Each != "" {
		bucket = fmt.Sprintf("{name: %ss, each: [%[1]s]}", s.Each)
	}
	own := ""
	if len(owners) > 0 {
		quoted := make([]string, len(owners))
		for i, o := range owners {
			quoted[i] = yamlText(o)
		}
		own = "owners: [" + strings.Join(quoted, ", ") + "]\n"
	}
	return fmt.Appendf(nil, "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: %s\n%sprofile: %s\nbuckets:\n  - %s\n", yamlText(s.Name), own, profile, bucket)
}

var yamlWord = regexp.MustCompile(`^[a-z][a-z0-9_.-]*[a-z0-9]$`)

// yamlText writes a name so that YAML reads it back as the same text.
func yamlText(s string) string {
	if yamlWord.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off"}, s) {
		return s
	}
	b, _ := json.Marshal(s) // a string cannot fail; JSON's strings are YAML's
	return string(b)
}
