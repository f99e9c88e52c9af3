package web

import (
	"net/http"
	"strconv"
)

// seen is what history tells of the service of the address, which has no policy
// yet.
func (s *server) seen(v *visit) (Sighting, error) {
	name := v.r.PathValue("service")
	if s.serviceExists(name) {
		return Sighting{}, fault{status: http.StatusConflict, detail: name + " has a policy: its quotas are at " + serviceURL(name) + "."}
	}
	if s.Onboarding == nil {
		return Sighting{}, missing("service", name)
	}
	return s.look(v, name)
}

// onboardJSON is /services/{service}/onboard.json.
func (s *server) onboardJSON(v *visit) error {
	seen, err := s.seen(v)
	if err != nil {
		return err
	}
	limits := []object{}
	for _, l := range seen.Limits {
		limits = append(limits, object{"bucket": l.Bucket, "key": l.Key, "peak": l.Peak, "days": l.Days, "coverage": l.Coverage, "limit": l.Limit, "confidence": l.confidence().After, "why": l.Why})
	}
	return answer(v, http.StatusOK, object{
		"service": v.r.PathValue("service"), "profile": seen.Profile, "each": orNull(seen.Each), "why": seen.Why, "offered": seen.Rate,
		"doubts": append([]string{}, seen.Doubts...), "policy": seen.Policy, "limits": limits, "more": seen.More,
	})
}

// onboardCSV is /services/{service}/onboard.csv.
func (s *server) onboardCSV(v *visit) error {
	seen, err := s.seen(v)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, l := range seen.Limits {
		limitRate, burst := "", ""
		if l.Limit != nil {
			limitRate, burst = float(float64(l.Limit.Rate)), float(float64(l.Limit.Burst))
		}
		rows = append(rows, []string{l.Bucket, l.Key.String(), float(float64(l.Peak)), strconv.Itoa(l.Days), float(float64(l.Coverage)), limitRate, burst, l.confidence().After, l.Why})
	}
	return sheet(v, "onboard-"+v.r.PathValue("service"), []string{"bucket", "key", "peak", "days", "coverage", "rate", "burst", "confidence", "why"}, rows)
}

// checklistCSV is /services/{service}/buckets/{bucket}/promote.csv.
func (s *server) checklistCSV(v *visit) error {
	service, bucket := v.r.PathValue("service"), v.r.PathValue("bucket")
	checks, err := s.Rollouts.Checklist(v.ctx(), service, bucket, s.word(v, service))
	if err != nil {
		return err
	}
	var rows [][]string
	for _, c := range checks {
		rows = append(rows, []string{c.Name, c.Text, strconv.FormatBool(c.OK), c.Found, c.Fix})
	}
	return sheet(v, "checklist-"+service+"-"+bucket, []string{"name", "text", "ok", "found", "fix"}, rows)
}
