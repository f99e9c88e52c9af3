package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// Overrides are the emergency limits and the kill switches. All but KeepOverride
// work with the records, git and Prometheus away.
type Overrides interface {
	Overrides() []rlc.Override // that stand or still leave a trace, the one that ends first before the others
	OverridesSent() rlc.Version
	SetOverride(ctx context.Context, o rlc.Override, actor string) (rlc.Override, error)
	ExtendOverride(ctx context.Context, id string, from time.Time, by time.Duration, actor string) (rlc.Override, error)
	EndOverride(ctx context.Context, id, actor string) (rlc.Override, error)
	// KeepOverride commits a cap that does the same to the service's policy.
	KeepOverride(ctx context.Context, id, actor string) (rlc.Commit, error)
	// CheckOverride makes the checks of SetOverride without setting anything.
	CheckOverride(o rlc.Override, actor string) error
	// OverridesTrouble is what people must know beside an act, as clauses: that
	// it is not written down, that enforcers refuse it; "" for nothing.
	OverridesTrouble() string
	Switches() []rlc.KillSwitch
	SetSwitch(ctx context.Context, name string, on bool, actor, reason string) error
}

// maxLife is how long an override may stand.
const maxLife = 7 * day

// overrideIn is what POST overrides reads.
type overrideIn struct {
	Service     string              `json:"service"`
	Match       map[string]patterns `json:"match"`
	Action      string              `json:"action"`
	Rate        *rlc.Rate           `json:"rate"`
	Burst       *rlc.Burst          `json:"burst"`
	DropRatio   rlc.Ratio           `json:"drop_ratio"`
	TTL         float64             `json:"ttl_seconds"`
	RampSeconds int                 `json:"ramp_seconds"`
	Reason      string              `json:"reason"`
}

// patterns is a pattern, or a list of values.
type patterns []string

// UnmarshalJSON implements json.Unmarshaler.
func (p *patterns) UnmarshalJSON(b []byte) error {
	one, list := "", []string(nil)
	if err := json.Unmarshal(b, &one); err == nil {
		*p = patterns{one}
		return nil
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return invalid("A pattern in match is a text, or a list of texts.")
	}
	*p = list
	return nil
}

// override checks what people must say; what enforcers would refuse is checked
// by the act.
func (in overrideIn) override(now time.Time) (o rlc.Override, err error) {
	if in.Service == "" {
		return o, invalid("Name a service, or * for every service.")
	}
	if in.Reason, err = reasonOf(in.Reason, overrideNeeds); err != nil {
		return o, err
	}
	if !(in.TTL >= 1 && in.TTL <= maxLife.Seconds()) {
		return o, invalid("ttl_seconds must be within 1 second and 7 days (%s).", rlc.Number(maxLife.Seconds()))
	}
	o = rlc.Override{
		Service: in.Service, Match: map[string][]string{}, Action: in.Action, Rate: in.Rate, Burst: in.Burst, DropRatio: in.DropRatio,
		From: now, Until: now.Add(time.Duration(in.TTL * float64(time.Second))), RampSeconds: in.RampSeconds, Reason: in.Reason,
	}
	for name, p := range in.Match {
		if i := slices.IndexFunc(p, func(text string) bool { return strings.ContainsFunc(text, untyped) }); i >= 0 {
			return o, invalid("match: %s is given as %s, which holds a character that no name has.", name, clipped(p[i]))
		}
		o.Match[name] = p
	}
	return o, nil
}

// effect is what an override would do to the traffic of the last hour.
type effect struct {
	Known    bool           `json:"known"`
	Why      string         `json:"why,omitempty"`     // why it is not known
	Warning  string         `json:"warning,omitempty"` // that nothing is known by the name it is for
	Offered  float64        `json:"offered"`           // requests per second that it matches, at most
	LastHour float64        `json:"last_hour"`         // the same in the mean of the last hour
	Drops    float64        `json:"drops"`             // requests per second that it would drop, at most
	Returns  float64        `json:"returns"`           // lift: dropped requests per second that would be admitted
	AtMost   bool           `json:"at_most"`           // some of the quotas hold other requests, too
	Affected []touched      `json:"affected"`          // the quotas, the one that sends most first
	Beside   []standsBeside `json:"beside"`            // what drops some of the same requests already, the one that decides first
	Says     string         `json:"says"`              // all of it in a sentence
}

type touched struct {
	Bucket string  `json:"bucket"`
	Key    rlc.Key `json:"key"`
	Rate   float64 `json:"rate"`
	All    bool    `json:"all"` // all of its requests are matched
}

// recent is over how long the traffic of now is measured.
const recent = 5 * time.Minute

// preview measures whom an override hits and says it.
func (s *server) preview(ctx context.Context, o rlc.Override) effect {
	e := s.measured(ctx, o)
	e.Says = textOf(saysOf(o, e))
	return e
}

// measured is whom an override hits, by what enforcers counted.
func (s *server) measured(ctx context.Context, o rlc.Override) effect {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if o.Service == "*" {
		return effect{Why: "it is for every service: no one figure says what it does"}
	}
	if text := s.noService(o.Service); text != "" {
		return effect{Why: text, Warning: text, Affected: []touched{}}
	}
	t, err := s.known(o.Service)
	if err != nil || t.service == nil {
		return effect{Why: "the service's buckets cannot be read now; the override works all the same"}
	}
	now := s.Now()
	counted, err := s.History.Counts(ctx, o.Service, recent, now)
	if err != nil {
		return effect{Why: "history is unreachable now; the override works all the same"}
	}
	hour, err := s.History.Counts(ctx, o.Service, time.Hour, now)
	if err != nil {
		hour = nil
	}
	if text := s.noCaller(t.service, o, counted, hour); text != "" && err == nil {
		return effect{Why: text, Warning: text, Affected: []touched{}}
	}
	if len(counted) == 0 && len(hour) == 0 && err == nil {
		return effect{Why: s.uncounted(ctx, o.Service), Affected: []touched{}}
	}
	others := s.othersOn(o)
	e := effect{Known: true, Beside: besides(others)}
	e.Affected, e.AtMost = hits(t.service, o, counted, recent)
	for _, h := range e.Affected {
		e.Offered += h.Rate
	}
	over, _ := hits(t.service, o, hour, time.Hour)
	for _, h := range over {
		e.LastHour += h.Rate
	}
	switch o.Action {
	case "block":
		e.Drops = e.Offered
	case "drop":
		e.Drops = e.Offered * float64(o.DropRatio)
	case "lift":
		e.Returns = s.lifted(t.service, o, others, counted)
	case "limit":
		if o.Rate != nil {
			e.Drops = math.Max(0, e.Offered-float64(*o.Rate))
		}
	}
	return e
}

func touches(svc *rlc.Service, o rlc.Override, c rlc.Count) (some, all bool) {
	b := svc.Bucket(c.Bucket)
	if b == nil {
		return o.Touches(nil, c.Key)
	}
	return o.Touches(b.Match, c.Key)
}

// hits are the quotas whose requests an override matches.
func hits(svc *rlc.Service, o rlc.Override, counted []rlc.Count, window time.Duration) (out []touched, atMost bool) {
	out = []touched{}
	for _, c := range counted {
		some, all := touches(svc, o, c)
		if !some || c.Offered <= 0 {
			continue
		}
		out = append(out, touched{c.Bucket, c.Key, c.Offered / window.Seconds(), all})
		atMost = atMost || !all
	}
	slices.SortStableFunc(out, func(x, y touched) int { return cmp.Compare(y.Rate, x.Rate) })
	return out, atMost
}

// --- by JSON

func (s *server) overrideJSON(o rlc.Override) object {
	now := s.Now()
	state := "ramp"
	switch {
	case o.Stands(now):
		state = "stands"
	case !now.Before(o.Over()):
		state = "over"
	}
	out := object{
		"id": o.ID, "service": o.Service, "match": o.Match, "action": o.Action, "rate": o.Rate, "burst": o.Burst, "drop_ratio": nil,
		"from": o.From.UTC(), "expires_at": o.Until.UTC(), "seconds_left": math.Max(0, math.Floor(o.Until.Sub(now).Seconds())),
		"ramp_until": o.Over().UTC(), "actor": o.Actor, "reason": o.Reason, "ended_by": orNull(o.EndedBy), "state": state,
	}
	if o.Action == "drop" {
		out["drop_ratio"] = o.DropRatio
	}
	return out
}

// apiOverrides lists what stands; ?all=true what stood, too, by page.
func (s *server) apiOverrides(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	past, err := v.flag("all")
	if err != nil {
		return err
	}
	all, total := s.Overrides.Overrides(), 0
	if past {
		if all, total, err = s.Records.OverrideLog(v.ctx(), page); err != nil {
			return err
		}
	} else {
		total = len(all)
		all = cut(all, page)
	}
	out := []object{}
	did := s.overridesDid(v.ctx(), all)
	for _, o := range all {
		out = append(out, s.standingJSON(o, did))
	}
	doc := paged("overrides", out, page, total)
	doc["snapshot"] = s.Overrides.OverridesSent().String()
	doc["zones"] = s.zonesOf()
	doc["switches"] = s.Overrides.Switches()
	return answer(v, http.StatusOK, doc)
}

// zoneAck is how far the overrides have come in one zone.
type zoneAck struct {
	Zone      string `json:"zone"`
	Have      int    `json:"have"`
	Enforcers int    `json:"enforcers"`
	Refused   int    `json:"refused"`
}

// zonesOf counts acknowledgements of the newest overrides by zone.
func (s *server) zonesOf() []zoneAck {
	newest := s.Overrides.OverridesSent()
	byZone := map[string]*zoneAck{}
	for _, a := range s.Truths.Acks() {
		z := byZone[a.Zone]
		if z == nil {
			z = &zoneAck{Zone: a.Zone}
			byZone[a.Zone] = z
		}
		z.Enforcers++
		if a.Overrides.Compare(newest) >= 0 {
			z.Have++
		}
		if a.OverridesRefused != "" {
			z.Refused++
		}
	}
	out := []zoneAck{}
	for _, z := range sortedMap(byZone) {
		out = append(out, *z)
	}
	return out
}

func (s *server) apiSetOverride(v *visit) error {
	only, err := v.flag("preview")
	if err != nil {
		return err
	}
	for name := range v.r.URL.Query() {
		if name != "preview" {
			return invalid("There is no parameter %q here; the only one is preview.", name)
		}
	}
	var in overrideIn
	if err := read(v, &in); err != nil {
		return err
	}
	o, err := in.override(s.Now())
	if err != nil {
		return err
	}
	if only {
		if err := s.Overrides.CheckOverride(o, v.who.name); err != nil {
			return err
		}
		return answer(v, http.StatusOK, s.preview(v.ctx(), o))
	}
	if o, err = s.Overrides.SetOverride(v.ctx(), o, v.who.name); err != nil {
		return err
	}
	out := s.standingJSON(o, did{})
	e := s.preview(v.ctx(), o)
	out["says"] = e.Says
	if text := warnings(e.Warning, s.reach(), s.Overrides.OverridesTrouble()); text != "" {
		out["warning"] = text
	}
	return answer(v, http.StatusCreated, out)
}

// changed answers an act on an override that stands.
func (s *server) changed(v *visit, o rlc.Override) error {
	out := s.standingJSON(o, did{})
	if text := warnings(s.reach(), s.Overrides.OverridesTrouble()); text != "" {
		out["warning"] = text
	}
	return answer(v, http.StatusOK, out)
}

func (s *server) apiEndOverride(v *visit) error {
	o, err := s.Overrides.EndOverride(v.ctx(), v.r.PathValue("id"), v.who.name)
	if err != nil {
		return err
	}
	return s.changed(v, o)
}

func (s *server) apiExtendOverride(v *visit) error {
	var in struct {
		By float64 `json:"by_seconds"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	if !(in.By >= 1 && in.By <= maxLife.Seconds()) {
		return invalid("by_seconds must be from 1 to %s.", rlc.Number(maxLife.Seconds()))
	}
	o, err := s.Overrides.ExtendOverride(v.ctx(), v.r.PathValue("id"), time.Time{}, time.Duration(in.By*float64(time.Second)), v.who.name)
	if err != nil {
		return err
	}
	return s.changed(v, o)
}

func (s *server) apiKeepOverride(v *visit) error {
	commit, err := s.Overrides.KeepOverride(v.ctx(), v.r.PathValue("id"), v.who.name)
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"commit": commit.Hash})
}

func (s *server) apiSwitches(v *visit) error {
	return answer(v, http.StatusOK, object{"switches": s.Overrides.Switches()})
}

func (s *server) apiSetSwitch(v *visit) error {
	var in struct {
		On     *bool  `json:"on"`
		Reason string `json:"reason"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	if in.On == nil {
		return invalid("on must be true or false")
	}
	reason, err := reasonOf(in.Reason, switchNeeds)
	if err != nil {
		return err
	}
	if err := s.Overrides.SetSwitch(v.ctx(), v.r.PathValue("switch"), *in.On, v.who.name, reason); err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"switches": s.Overrides.Switches(), "warning": orNull(warnings(s.reach(), s.Overrides.OverridesTrouble()))})
}

// unavailable reports whether the records cannot be reached.
func unavailable(err error) bool {
	return errors.Is(err, rlc.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
