package rlc

import "time"

// Notice is something that people are told by message: who, what, and where to
// look. One with the same id and target is told once.
type Notice struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`    // override, halt, rollback, drops, tightening, promotion, ask or failed
	Service string    `json:"service"` // whom it is about
	Owners  []string  `json:"owners"`  // groups who should hear of it
	At      time.Time `json:"at"`
	Text    string    `json:"text"` // one sentence
	URL     string    `json:"url"`  // of the page to look at
	Urgent  bool      `json:"urgent"`
}

// OutgoingNotice is a notice on its way to one target.
type OutgoingNotice struct {
	Notice
	Target    string // its name in the configuration
	Attempts  int    // how many failed
	NotBefore time.Time
	Error     string // of the last attempt; "" before the first
}
