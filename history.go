package rlc

import (
	"cmp"
	"context"
	"time"
)

// Sample is the mean offered rate over the step that starts at Time.
type Sample struct {
	Time time.Time
	Rate Rate
}

// Hour summarises one clock hour (UTC) of a series. Present 0 means that
// nothing is known of it: a gap, not a zero.
type Hour struct {
	Start     time.Time
	Max       Rate // highest step
	P99       Rate // 99th percentile of the present steps, nearest rank
	Mean      Rate // over the present steps
	Second    Rate // highest one-second rate, at most, as enforcers counted it; 0 where nobody did. A SeriesDay has none: it is stored beside
	Present   int  // steps with a sample
	Expected  int  // steps that should have one
	Partial   int  // of Present: steps at which less than 95 % of the targets reported
	Unhealthy bool // the service was failing: what came in is inflated by retries
	Drops     Ratio
	// Drops is the share of the hour's offered requests that enforcement
	// dropped; 0 where nothing enforces.
}

// SeriesID identifies a stored series: a hash of (source, step, match set,
// bucket, key). A changed hash is read anew.
type SeriesID string

// SeriesDay is a stored UTC day of one series: 24 hourly sketches at most and
// every sample above TailFloor (at least the day's top 1 %).
type SeriesDay struct {
	Series    SeriesID
	Day       time.Time // midnight UTC
	Hours     []Hour    // ascending; hours without any sample may be left out
	Tail      []Sample  // ascending in time, every sample ≥ TailFloor
	TailFloor Rate      // samples below it are not in Tail
	Sealed    time.Time // hours that end at or before it are closed and not read again
}

// PackedDay is a SeriesDay as it is stored: Data holds the hours and the tail.
type PackedDay struct {
	Series SeriesID
	Day    time.Time
	Sealed time.Time
	Data   []byte
}

// Compare orders days by series, and those of a series in time.
func (d PackedDay) Compare(o PackedDay) int {
	return cmp.Or(cmp.Compare(d.Series, o.Series), d.Day.Compare(o.Day))
}

// SeriesKey names a stored series for people.
type SeriesKey struct {
	ID      SeriesID
	Service string
	Bucket  string
	Key     Key
}

// History is what is known of one series over a window: hourly sketches and
// the tail. Its size does not depend on the step.
type History struct {
	Step      time.Duration
	From      time.Time // start of the window asked for
	Until     time.Time // the run's now
	Hours     []Hour    // ascending, hours without samples left out
	Tail      []Sample  // ascending in time: every sample ≥ TailFloor
	TailFloor Rate      // the highest floor of the window's days
	Newest    time.Time // end of the newest step with a sample; zero when there is none
	Targets   bool      // the profile has "complete": coverage counts targets too
	Source    string    // which query
	Problems  []HistoryProblem
}

// HistoryProblem is why a series cannot be trusted in this run. It holds the
// quota. Rule is one of no_data, warning, duplicate, source_changed, clock_skew,
// failed, budget, attribute_not_in_history.
type HistoryProblem struct {
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
}

// Series is the history of one bucket's key.
type Series struct {
	Bucket  string
	Key     Key
	History History
}

// Input is what a policy sees. It has no clock and no store: equal inputs give
// equal estimates.
type Input struct {
	Service  string
	Bucket   string
	Key      Key
	Now      time.Time
	Location *time.Location // the service's time zone; nil means UTC
	History  History
	Current  *Limit    // the quota in force, nil where there is none
	Capacity *Capacity // the service's, nil where none was declared
	Contract *Contract // what the caller was promised, nil for nothing
	Exclude  []Window  // declared incidents: never counted
	Count    []Window  // flagged windows that a person said are traffic
	Events   []Event   // declared: a forecast multiplies by them; their limits are windows of their own
	Answer   string    // what an outside model answered when this run was made before; "": it is asked
}

// Needs says how much history a policy reads.
type Needs struct {
	Lookback time.Duration // 0: none, the policy reads no history
	Every    time.Duration // how often it wants to be asked, more often than the schedule; 0: by the schedule
	Outside  bool          // it asks a model outside: Estimate.Answer is recorded, and given back in Input.Answer
}

// Policy turns history into an estimate. It is a pure function of its input.
type Policy interface {
	Needs() Needs
	// Propose estimates a limit, or returns an error that wraps ErrAbstain.
	Propose(ctx context.Context, in Input) (Estimate, error)
}

// Estimate is what a policy proposes before the guards.
type Estimate struct {
	Limit       Limit     // Rate unrounded
	BurstUnseen bool      // its burst is a guess: what is shorter than a step of the history is not visible to the policy
	Shadow      bool      // evidence is thin: the quota must stay in shadow
	NoDecrease  string    // why a decrease is not allowed; "" where it is
	MaxIncrease float64   // cap on the relative increase against the quota in force; 0 for none
	Look        string    // why a person should look; "" for no reason
	Fixed       bool      // a person's or a contract's number: no deadband, step or rounding
	Steps       []Reason  // from samples to the number, in order
	Why         string    // one line naming every factor that is not 1
	Peak        Peak      // the peak that counts: the highest step without what the policy leaves out
	ValidDays   float64   // days with data, as the policy counts them
	Coverage    Ratio     // present / expected of the window
	Flags       []Flag    // windows left out of the estimate
	Forecast    *Forecast // nil where the policy makes none
	Answer      string    // what an outside model answered, as received; "" where none was asked
}

// Forecast is what a policy expects of the hours to come: hour i starts at
// From + i × 1 h.
type Forecast struct {
	From time.Time `json:"from"` // the clock hour (UTC) of the run's now
	Q50  []Rate    `json:"q50"`  // half of the hour's steps lie at or below it
	Q99  []Rate    `json:"q99"`  // 99 % of the hour's steps lie at or below it
	// Coverage is the share of steps at or below Q99 where past days were
	// forecast the same way; nil where none could be.
	Coverage *Ratio `json:"coverage"`
	// Rates are the limits to be in force hour by hour, unrounded; nil where
	// Estimate.Limit stands for all hours.
	Rates []Rate `json:"rates,omitempty"`
}

// Hours are the limits to be in force hour by hour, unrounded; nil where there
// are none.
func (f *Forecast) Hours() *QuotaHours {
	if f == nil || len(f.Rates) == 0 {
		return nil
	}
	return &QuotaHours{From: f.From.UTC(), Rates: f.Rates}
}

// Peak is a step of a series, the highest of those meant, and when it started.
type Peak struct {
	Rate Rate      `json:"rate"`
	At   time.Time `json:"at"`
}

// Flag is a window that a policy left out, shown as a band. With says what the
// quota's rate would have been had it counted.
type Flag struct {
	Window
	Rule string `json:"rule"` // spike, unhealthy, enforced_drops, excluded
	Peak Rate   `json:"peak"`
	With Rate   `json:"with"`
}

// Reason is one step from samples to the number, or one guard's amendment.
// Rate is the rate after it.
type Reason struct {
	Rule   string `json:"rule"`   // closed set, snake_case: weekly_peak, headroom, step_down, …
	Detail string `json:"detail"` // for people
	Rate   Rate   `json:"rate"`
	Acted  bool   `json:"acted"` // the step changed the number
	// Asks says that the step left the number and wants a person to look at it.
	Asks bool `json:"asks,omitempty"`
}

// Backtest is what a limit would have done to past traffic.
type Backtest struct {
	Requests float64   `json:"requests"`
	Drops    float64   `json:"drops"`
	Share    Ratio     `json:"share"`
	Step     float64   `json:"step_seconds"`
	AtLeast  bool      `json:"at_least,omitempty"` // drops is a lower bound: the limit lies below the tail
	Episodes []Episode `json:"episodes"`
	Omitted  int       `json:"episodes_omitted,omitempty"` // episodes left out where a change is recorded: those with the fewest drops
	Worst    *Peak     `json:"worst"`                      // the step with the largest excess, nil where nothing was dropped
	Bursts   *Bursts   `json:"bursts,omitempty"`           // nil where nobody counted seconds: peaks below a step are not visible
}

// Bursts is what seconds that enforcers counted say of a limit's burst. A second
// is held if it brings no more than the burst and what the limit refills in it;
// the burst is full when it comes. What a history holds of a second is an upper
// bound (see Hour.Second), so that what is held is held for sure.
type Bursts struct {
	Hours   int   `json:"hours"`        // with traffic whose seconds were counted
	Unseen  int   `json:"hours_unseen"` // with traffic and none counted
	Over    int   `json:"hours_over"`   // of Hours: the highest second was not held
	Highest Peak  `json:"highest"`      // the highest second; At is the start of its hour
	Holds   Burst `json:"holds"`        // the least burst that holds them all at this rate
}

// Episode is a run of dropping steps with quiet gaps under ten minutes joined.
type Episode struct {
	Bucket string    `json:"bucket,omitempty"`
	Key    Key       `json:"key,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Peak   Rate      `json:"peak"`
	Limit  Rate      `json:"limit"`
	Drops  float64   `json:"virtual_drops"`
	Share  Ratio     `json:"share"` // drops / requests offered in the episode
}

// HistoryRequest asks for the history of every computed bucket of a service.
type HistoryRequest struct {
	Service  *Service
	Profile  *Profile
	Lookback time.Duration // how far back from Now
	Now      time.Time     // the run's now: nothing later is read
}
