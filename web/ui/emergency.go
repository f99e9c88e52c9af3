package ui

// EmergencyForm is where the form of a new override is sent.
const EmergencyForm = "/emergency"

// Emergency is the page /emergency.
type Emergency struct {
	SignIn        string // "" where the viewer may act
	Form          OverrideForm
	Preview       *Preview // nil before the first look
	Standing      []OverrideRow
	StandingPager Pager
	Zones         []Sign
	Switches      []SwitchRow
	Recent        []OverrideRow
	NoRecent      string // why nothing is listed
	Pager         Pager
}

// OverrideForm is what the form for a new override holds.
type OverrideForm struct {
	Services                         []string
	Service, Caller, Procedure, Also string
	Actions                          []Choice
	Rate, Drop                       string
	Lives                            []Choice
	Other                            string // another duration
	Reason                           string
}

// Preview says what an override would do.
type Preview struct {
	Sentence []Part
	Affected []AffectedRow
	Command  string
}

// AffectedRow is a quota whose requests an override matches.
type AffectedRow struct {
	Quota Link
	Rate  string
	Note  string
}

// OverrideRow is an override: standing, in its ramp, or over.
type OverrideRow struct {
	ID      string
	Left    string // "18:42"
	Until   Time
	From    Time
	Subject string
	Link    Link // to its service; without a URL for every service
	Does    string
	By      string
	Reason  string
	Held    string // how long it stood
	Ramp    bool   // it is over, and its requests come back
	Keep    bool   // it can become a cap
	Did     []Part // what it did of late; nil where the page does not say
	Returns []Part // what holds when it ends; nil where the page does not say
}

// SwitchRow is a kill switch.
type SwitchRow struct {
	Name, Text string
	On         bool
	By         string
}
